// Before the first paint: the theme that was chosen, if one was. No choice follows the system.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("limpet.theme"); } catch { /* storage may be denied: then the system's theme it is */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
