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
  trustBundle: {configMap: "", key: ca.crt, apiServiceSecret: ""}
  workerClientName: devicemanager-worker
  scraperClientName: devicemanager-scraper
deviceManager:
  securePort: 32443
  monitorPeriod: 15s
  logLevel: info
  serviceAccount: {create: true}
  podMonitor: {interval: 15s, scrapeTimeout: 10s}
  networkPolicy: {enabled: true}
manufacturers: {}
worker:
  enabled: true
  replicas: 2
  securePort: 10250
  logLevel: info
  shutdownDelaySeconds: 15
  drainSeconds: 10
  podDisruptionBudget: {enabled: true, maxUnavailable: 1}
  serviceAccount: {create: true}
  apiService: {create: true, group: worker.gpustack.ai, groupPriorityMinimum: 100, versionPriority: 15}
  kubelet: {mode: proxy}
  deviceManagers: {}
  networkPolicy: {egress: {apiServerPorts: [443, 6443], kubeletPort: 10250}}
userRoles: {create: true}
priorityClassQuota: {pods: 1G}
instanceCrd: {}
{{- end -}}

{{- /* What a pod is held to unless single keys are set or taken away. It comes back where the whole map is lacking, as it does in
values reused from a chart that did not have it: nobody loses it by an upgrade. */ -}}
{{- define "devicemanager.hardening" -}}
podSecurityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- define "devicemanager.values" -}}
{{- include "devicemanager.fill" (list .Values (include "devicemanager.required" . | fromYaml)) -}}
{{- range $key, $default := include "devicemanager.hardening" . | fromYaml -}}
{{- range list $.Values.deviceManager $.Values.worker -}}
{{- if kindIs "invalid" (index . $key) -}}
{{- $_ := set . $key $default -}}
{{- end -}}
{{- end -}}
{{- end -}}
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

{{- /* The bytes of a quantity such as 192Mi, which the schema has found to be one. */ -}}
{{- define "devicemanager.bytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- if hasKey $units $unit -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) -}}
{{- else -}}
{{- /* Larger units, and exponents: large enough. */ -}}
{{- 1e15 -}}
{{- end -}}
{{- end -}}

{{- /* The seconds of a duration such as 1m30s, which the schema has found to be one. */ -}}
{{- define "devicemanager.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
