{{- define "devicemanager.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "devicemanager.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "devicemanager.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "devicemanager.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: {{ include "devicemanager.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* The labels by which the worker finds a device manager; a manufacturer is added by the DaemonSet. */ -}}
{{- define "devicemanager.deviceManager.selector" -}}
app.kubernetes.io/name: {{ include "devicemanager.fullname" . }}-device-manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: device-manager
{{- end -}}

{{- define "devicemanager.worker.selector" -}}
app.kubernetes.io/name: {{ include "devicemanager.fullname" . }}-worker
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "devicemanager.deviceManager.serviceAccount" -}}
{{- default (printf "%s-device-manager" (include "devicemanager.fullname" .)) .Values.deviceManager.serviceAccount.name -}}
{{- end -}}

{{- define "devicemanager.worker.serviceAccount" -}}
{{- default (printf "%s-worker" (include "devicemanager.fullname" .)) .Values.worker.serviceAccount.name -}}
{{- end -}}

{{- define "devicemanager.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "devicemanager.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "devicemanager.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The one name that every device manager's certificate carries, whatever pod address the worker dials. */ -}}
{{- define "devicemanager.deviceManager.serverName" -}}
{{- printf "%s-device-manager.%s.svc" (include "devicemanager.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "devicemanager.worker.serverName" -}}
{{- printf "%s-worker.%s.svc" (include "devicemanager.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "devicemanager.tls.secretName" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $given := index $root.Values.tls.existingSecret $role | default "" -}}
{{- $suffix := dict "deviceManager" "device-manager-tls" "worker" "worker-tls" "workerClient" "worker-client-tls" "scraperClient" "scraper-client-tls" -}}
{{- if eq $root.Values.tls.mode "existingSecret" -}}
{{- required (printf "tls.mode is existingSecret: tls.existingSecret.%s must name a Secret" $role) (ternary $given nil (ne $given "")) -}}
{{- else -}}
{{- printf "%s-%s" (include "devicemanager.fullname" $root) (get $suffix $role) -}}
{{- end -}}
{{- end -}}

{{- /* The service, namespace/name, that the APIService of our group names now if it is not ours; else nothing. */ -}}
{{- define "devicemanager.apiService.other" -}}
{{- $live := lookup "apiregistration.k8s.io/v1" "APIService" "" (printf "v1.%s" .Values.worker.apiService.group) | default dict -}}
{{- $service := dig "spec" "service" dict $live -}}
{{- $found := printf "%s/%s" (get $service "namespace") (get $service "name") -}}
{{- if and $service (ne $found (printf "%s/%s-worker" .Release.Namespace (include "devicemanager.fullname" .))) -}}
{{- $found -}}
{{- end -}}
{{- end -}}
