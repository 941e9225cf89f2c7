"""``limpet demo``: several gateway processes, one store, some hundred conversations, and what came of them.

``plan`` says what is sent, ``drive`` sends it, ``gateway`` is one replica (a process of its own), ``alone`` is what that
replica would have done by itself, ``count`` holds the recorded answers against the guarantees. Nothing here prints.
"""
