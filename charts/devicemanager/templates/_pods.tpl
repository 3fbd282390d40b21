{{- /* (list $ manufacturer): the image; a manufacturer's own names another repository, or other tags of the same. */ -}}
{{- define "devicemanager.image" -}}
{{- $root := index . 0 -}}
{{- $own := (index . 1).image | default dict -}}
{{- $image := $root.Values.image -}}
{{- $repository := $own.repository | default $image.repository -}}
{{- $shared := not (or $own.repository $own.tag) -}}
{{- $digest := $own.digest | default (ternary $image.digest "" $shared) -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($own.tag | default $image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* (list map map …): one map, the later ones' keys first; a key whose last value is null is taken away. */ -}}
{{- define "devicemanager.overlay" -}}
{{- $result := dict -}}
{{- range . -}}
{{- range $key, $value := . | default dict -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $result $key -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $result -}}
{{- toYaml $result -}}
{{- end -}}
{{- end -}}

{{- /* (list resources resources): one; the later one's keys first, in requests and limits each. */ -}}
{{- define "devicemanager.resources" -}}
{{- $shared := index . 0 | default dict -}}
{{- $own := index . 1 | default dict -}}
{{- $result := merge (dict) (deepCopy $own) (deepCopy $shared) -}}
{{- range $part := list "requests" "limits" -}}
{{- $_ := set $result $part (include "devicemanager.overlay" (list (get $shared $part) (get $own $part)) | fromYaml) -}}
{{- if not (get $result $part) -}}
{{- $_ := unset $result $part -}}
{{- end -}}
{{- end -}}
{{- if $result -}}
{{- toYaml $result -}}
{{- end -}}
{{- end -}}

{{- /* (list list list …): one environment, each name once, with the value that came last. */ -}}
{{- define "devicemanager.env" -}}
{{- $named := dict -}}
{{- $order := list -}}
{{- range . -}}
{{- range . | default list -}}
{{- if not (hasKey $named .name) -}}
{{- $order = append $order .name -}}
{{- end -}}
{{- $_ := set $named .name . -}}
{{- end -}}
{{- end -}}
{{- range $order }}
{{ list (get $named .) | toYaml }}
{{- end -}}
{{- end -}}
