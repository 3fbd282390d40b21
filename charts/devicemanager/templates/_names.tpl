{{- /*
Names of objects, and the labels by which they are found. A name keeps its whole text up to the 63 characters that a DNS label
may have; a longer one ends in a hash of the whole, so that two long names never become one.
*/ -}}
{{- define "devicemanager.cut" -}}
{{- if gt (len .) 63 -}}
{{- printf "%s-%s" (trunc 54 . | trimAll "-.") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- define "devicemanager.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{- /* What every name begins with. */ -}}
{{- define "devicemanager.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "devicemanager.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- end -}}

{{- /* (list $ suffix): the name of an object of the release's namespace. */ -}}
{{- define "devicemanager.object" -}}
{{- include "devicemanager.cut" (printf "%s-%s" (include "devicemanager.fullname" (index . 0)) (index . 1)) -}}
{{- end -}}

{{- /* (list $ suffix): the name of an object outside of it, where a release of the same name in another namespace has its own. */ -}}
{{- define "devicemanager.clusterObject" -}}
{{- $root := index . 0 -}}
{{- printf "%s:%s-%s" $root.Release.Namespace (include "devicemanager.fullname" $root) (index . 1) -}}
{{- end -}}

{{- define "devicemanager.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: {{ include "devicemanager.name" . | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* (list $ selector): those, those that select it, and more maps of them; each key once, the last one's value. */ -}}
{{- define "devicemanager.labelsWith" -}}
{{- $labels := include "devicemanager.labels" (first .) | fromYaml -}}
{{- range rest . -}}
{{- $labels = merge (dict) (. | default dict) $labels -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* The labels by which the worker finds a device manager; a manufacturer is added by the DaemonSet. */ -}}
{{- define "devicemanager.deviceManager.selector" -}}
app.kubernetes.io/name: {{ include "devicemanager.object" (list . "device-manager") }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: device-manager
{{- end -}}

{{- define "devicemanager.worker.selector" -}}
app.kubernetes.io/name: {{ include "devicemanager.object" (list . "worker") }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "devicemanager.deviceManager.serviceAccount" -}}
{{- default (include "devicemanager.object" (list . "device-manager")) .Values.deviceManager.serviceAccount.name -}}
{{- end -}}

{{- define "devicemanager.worker.serviceAccount" -}}
{{- default (include "devicemanager.object" (list . "worker")) .Values.worker.serviceAccount.name -}}
{{- end -}}

{{- /* The one name that every device manager's certificate carries, whatever pod address the worker dials. */ -}}
{{- define "devicemanager.deviceManager.serverName" -}}
{{- printf "%s.%s.svc" (include "devicemanager.object" (list . "device-manager")) .Release.Namespace -}}
{{- end -}}

{{- define "devicemanager.worker.serverName" -}}
{{- printf "%s.%s.svc" (include "devicemanager.object" (list . "worker")) .Release.Namespace -}}
{{- end -}}

{{- /* The roles that hold a certificate; the names in each are both its alternative names and what peers check. */ -}}
{{- define "devicemanager.tls.roles" -}}
deviceManager: {usage: server auth, names: [{{ include "devicemanager.deviceManager.serverName" . }}]}
worker: {usage: server auth, names: [{{ include "devicemanager.worker.serverName" . }}, {{ include "devicemanager.worker.serverName" . }}.cluster.local]}
workerClient: {usage: client auth, names: [{{ .Values.tls.workerClientName | quote }}]}
{{- if .Values.deviceManager.podMonitor.enabled }}
scraperClient: {usage: client auth, names: [{{ .Values.tls.scraperClientName | quote }}]}
{{- end }}
{{- end -}}

{{- define "devicemanager.tls.secretName" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $given := index $root.Values.tls.existingSecret $role | default "" -}}
{{- $suffix := dict "deviceManager" "device-manager-tls" "worker" "worker-tls" "workerClient" "worker-client-tls" "scraperClient" "scraper-client-tls" -}}
{{- if eq $root.Values.tls.mode "existingSecret" -}}
{{- required (printf "tls.mode is existingSecret: tls.existingSecret.%s must name a Secret" $role) (ternary $given nil (ne $given "")) -}}
{{- else -}}
{{- include "devicemanager.object" (list $root (get $suffix $role)) -}}
{{- end -}}
{{- end -}}
