{{- define "replkernel.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- define "replkernel.selector" -}}
app.kubernetes.io/name: replkernel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "replkernel.labels" -}}
{{ include "replkernel.selector" . }}
app.kubernetes.io/version: {{ .Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}
{{- define "replkernel.image" -}}
{{ .Values.image.name }}:{{ .Values.image.tag | default .Chart.Version }}
{{- end -}}
{{- define "replkernel.secret" -}}
{{ .Values.existingSecret | default (include "replkernel.name" .) }}
{{- end -}}
{{- define "replkernel.prefix" -}}
{{ trimSuffix "/" .Values.hub.baseUrl }}/services/replkernel
{{- end -}}
{{- /* The pods of z2jh's release, of one component. */ -}}
{{- define "replkernel.z2jh" -}}
matchLabels:
  app.kubernetes.io/instance: {{ .root.Values.hub.release }}
  app.kubernetes.io/component: {{ .component }}
{{- end -}}
{{- define "replkernel.agents" -}}
matchLabels:
  {{- include "replkernel.selector" . | nindent 2 }}
  app.kubernetes.io/component: agent
{{- end -}}
