{{- /* Something, where there is a cluster to look at: every one has this APIService. */ -}}
{{- define "devicemanager.cluster" -}}
{{- with lookup "apiregistration.k8s.io/v1" "APIService" "" "v1." -}}
{{- .kind | default "APIService" -}}
{{- end -}}
{{- end -}}

{{- /* What the APIService carries as a label, and the worker looks for: whose it is, wherever it points. */ -}}
{{- define "devicemanager.apiService.owner" -}}
{{- include "devicemanager.cut" (printf "%s.%s" .Release.Namespace (include "devicemanager.object" (list . "worker"))) -}}
{{- end -}}

{{- /* The service, namespace/name, that the APIService of our group names now if it is not ours; else nothing. */ -}}
{{- define "devicemanager.apiService.other" -}}
{{- $live := lookup "apiregistration.k8s.io/v1" "APIService" "" (printf "v1.%s" .Values.worker.apiService.group) | default dict -}}
{{- $service := dig "spec" "service" dict $live -}}
{{- $found := printf "%s/%s" (get $service "namespace") (get $service "name") -}}
{{- if and $service (ne $found (printf "%s/%s" .Release.Namespace (include "devicemanager.object" (list . "worker")))) -}}
{{- $found -}}
{{- end -}}
{{- end -}}
