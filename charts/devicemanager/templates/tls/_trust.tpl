{{- /*
Whom a pod trusts: the ca.crt beside its own pair, or a bundle that somebody keeps for all pods, so that an authority can be replaced
while leaves of the old one and of the new one are shown.
*/ -}}
{{- define "devicemanager.trust.file" -}}
{{- ternary "/etc/devicemanager/trust" (index . 1) (ne (index . 0).Values.tls.trustBundle.configMap "") -}}/ca.crt
{{- end -}}

{{- define "devicemanager.trust.mount" -}}
{{- if .Values.tls.trustBundle.configMap -}}
- name: trust
  mountPath: /etc/devicemanager/trust
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "devicemanager.trust.volume" -}}
{{- with .Values.tls.trustBundle -}}
{{- if .configMap -}}
- name: trust
  configMap:
    name: {{ .configMap | quote }}
    items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- end -}}
{{- end -}}
{{- end -}}
