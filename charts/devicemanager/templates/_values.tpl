{{- /*
What a template must find even where a value was set to null, or where `--reuse-values` brought values of an older chart.
Only what an installation cannot do without; every other default stands in values.yaml alone, and null removes it.
Each template includes "devicemanager.values" first.
*/ -}}
{{- define "devicemanager.required" -}}
image: {repository: ghcr.io/gpustack/device-manager, pullPolicy: IfNotPresent}
tls:
  mode: helm
  helm: {validityDays: 1825, caValidityDays: 3650, renewBeforeDays: 180}
  certManager: {issuerRef: {}, duration: 2160h, renewBefore: 720h}
  existingSecret: {}
  workerClientName: devicemanager-worker
  scraperClientName: devicemanager-scraper
deviceManager:
  securePort: 32443
  monitorPeriod: 15s
  logLevel: info
  serviceAccount: {create: true}
  podMonitor: {interval: 15s, scrapeTimeout: 10s}
  networkPolicy: {}
manufacturers: {}
worker:
  enabled: true
  replicas: 2
  securePort: 10250
  logLevel: info
  shutdownDelaySeconds: 15
  drainSeconds: 10
  podDisruptionBudget: {enabled: true, minAvailable: 1}
  serviceAccount: {create: true}
  apiService: {create: true, group: worker.gpustack.ai, groupPriorityMinimum: 100, versionPriority: 15}
  kubelet: {mode: proxy}
  deviceManagers: {}
  networkPolicy: {}
userRoles: {create: true}
instanceCrd: {}
{{- end -}}

{{- define "devicemanager.values" -}}
{{- include "devicemanager.fill" (list .Values (include "devicemanager.required" . | fromYaml)) -}}
{{- end -}}

{{- /* Not `merge`: it takes 0 and false for missing. */ -}}
{{- define "devicemanager.fill" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if kindIs "invalid" (index $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- else if kindIs "map" $default -}}
{{- include "devicemanager.fill" (list (index $values $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
