{{- /*
For which values the device managers' policy leaves their port open to everybody: somebody besides this release's workers reads
them then, and nobody says who that is. Empty: it admits those workers and who is named.
*/ -}}
{{- define "devicemanager.deviceManager.openFor" -}}
{{- $dm := .Values.deviceManager -}}
{{- $for := list -}}
{{- if not (or $dm.networkPolicy.scrapers $dm.networkPolicy.extraIngress) -}}
{{- if $dm.podMonitor.enabled -}}
{{- $for = append $for "deviceManager.podMonitor.enabled" -}}
{{- end -}}
{{- if $dm.allowAnonymous -}}
{{- $for = append $for "deviceManager.allowAnonymous" -}}
{{- end -}}
{{- if not .Values.worker.enabled -}}
{{- $for = append $for "worker.enabled=false" -}}
{{- else if .Values.worker.hostNetwork -}}
{{- $for = append $for "worker.hostNetwork" -}}
{{- end -}}
{{- end -}}
{{- join ", " $for -}}
{{- end -}}
