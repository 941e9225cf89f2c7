{{- define "limpet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "limpet.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "limpet.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: limpet
{{- end -}}

{{- define "limpet.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "limpet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "limpet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "limpet.storeSecret" -}}
{{- if .Values.store.existingSecret -}}
{{- .Values.store.existingSecret -}}
{{- else -}}
{{- $_ := required "Without a store nothing can be shared: set store.existingSecret (a Secret with the URL) or store.url." .Values.store.url -}}
{{- include "limpet.fullname" . }}-store
{{- end -}}
{{- end -}}

{{/* What every container of ours is told: the store, the tokens, and the settings of all. */}}
{{- define "limpet.env" -}}
- name: LIMPET_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "limpet.storeSecret" . }}, key: {{ .Values.store.key }}}}
{{- with .Values.auth }}
{{- if or .existingSecret .tokens }}
- name: LIMPET_TOKENS
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | default (printf "%s-auth" (include "limpet.fullname" $)) }}, key: {{ .tokensKey }}}}
{{- else if .insecure }}
- name: LIMPET_INSECURE
  value: "true"
{{- else }}
{{- fail "Without tokens whoever reaches the pods may use them: set auth.existingSecret or auth.tokens, or auth.insecure=true behind a NetworkPolicy." }}
{{- end }}
{{- if .metricsTokenSecret }}
- name: LIMPET_METRICS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .metricsTokenSecret }}, key: {{ .metricsTokenKey }}}}
{{- end }}
{{- if .scopeSecret }}
- name: LIMPET_SCOPE_SECRET
  valueFrom: {secretKeyRef: {name: {{ .scopeSecret }}, key: {{ .scopeSecretKey }}}}
{{- end }}
{{- end }}
- name: LIMPET_SHUTDOWN_GRACE_S
  value: {{ .Values.shutdownGraceSeconds | quote }}
{{- end -}}

{{/* A setting as the environment holds it. Numbers of values.yaml are floats, which %v would print as 2.592e+06. */}}
{{- define "limpet.value" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ . | toJson | quote }}{{ end -}}
{{- end -}}
