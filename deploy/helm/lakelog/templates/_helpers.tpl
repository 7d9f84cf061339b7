{{/* What names of the parts begin with. Of a CronJob's 52 characters this leaves 11 for the schedule's name. */}}
{{- define "lakelog.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "lakelog.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lakelog.labels" -}}
{{ include "lakelog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "lakelog.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lakelog.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "lakelog.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end }}

{{- define "lakelog.jobsImage" -}}
{{- printf "%s:%s" .Values.jobs.image.repository (default .Chart.AppVersion .Values.jobs.image.tag) -}}
{{- end }}

{{/* Where the topics are, or a word on what to do. */}}
{{- define "lakelog.warehouse" -}}
{{- if .Values.persistence.enabled -}}
{{- if .Values.warehouse -}}
{{- fail "warehouse and persistence.enabled exclude each other: topics are on an object store or on a volume" -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail "persistence.enabled is for one gateway: with more replicas, let warehouse name an object store" -}}
{{- end -}}
/data
{{- else -}}
{{- required "warehouse is missing: name an object store (--set warehouse=s3://my-bucket/topics), or set persistence.enabled" .Values.warehouse -}}
{{- end -}}
{{- end }}

{{/* Long enough for the requests under way, for the endpoints to hear of it, and for the last commits. */}}
{{- define "lakelog.stopSeconds" -}}
{{- add (div (int64 (default 20000 .Values.settings.stop_timeout_ms)) 1000) 20 -}}
{{- end }}

{{/* Where Kafka's clients come back to. */}}
{{- define "lakelog.kafka" -}}
{{- default (printf "%s-coordinator.%s.svc:%d" (include "lakelog.name" .) .Release.Namespace (int .Values.kafka.port)) .Values.kafka.advertised -}}
{{- end }}

{{/* Where clients outside find the gateways. */}}
{{- define "lakelog.publicUrl" -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.tlsSecret))) .Values.ingress.host -}}
{{- end }}

{{- define "lakelog.environment" -}}
- configMapRef:
    name: {{ include "lakelog.name" . }}
{{- with .Values.store.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- end }}

{{- define "lakelog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "lakelog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
