{{- /*
Certificates made by the chart. Templates cannot read a certificate, so its end is written beside it as an annotation.

`devicemanager.pki` fills `.Values.tls.made` once per rendering: {bundle, caCrt, caKey, caEnd, staged: {crt, key, end}?, leaves: {role: {crt, key, end, names}}}.
Every file that needs a certificate includes it first; only the first call does the work.
*/ -}}
{{- define "devicemanager.pki" -}}
{{- if not (hasKey .Values.tls "made") -}}
{{- $o := .Values.tls.helm -}}
{{- $caName := include "devicemanager.object" (list . "ca") -}}
{{- $now := now -}}
{{- $horizon := $now | mustDateModify (printf "+%dh" (mul 24 (int $o.renewBeforeDays))) | unixEpoch | int64 -}}
{{- $leafEnd := $now | mustDateModify (printf "+%dh" (mul 24 (int $o.validityDays))) | unixEpoch | int64 -}}
{{- $newCaEnd := $now | mustDateModify (printf "+%dh" (mul 24 (int $o.caValidityDays))) | unixEpoch | int64 -}}
{{- $made := dict "leaves" dict "renewed" true "staged" dict -}}
{{- $old := (lookup "v1" "Secret" .Release.Namespace $caName) | default dict -}}
{{- $data := $old.data | default dict -}}
{{- $notes := ($old.metadata | default dict).annotations | default dict -}}
{{- $caEnd := get $notes "devicemanager.gpustack.ai/not-after-epoch" | default "0" | int64 -}}
{{- $stagedEnd := get $notes "devicemanager.gpustack.ai/next-not-after-epoch" | default "0" | int64 -}}
{{- $ca := dict -}}
{{- if not (hasKey $data "issuer.key") -}}
{{- /* The first installation. */ -}}
{{- $ca = genCA $caName (int $o.caValidityDays) -}}
{{- $caEnd = $newCaEnd -}}
{{- $_ := set $made "bundle" $ca.Cert -}}
{{- else if and (hasKey $data "next.key") (lt $caEnd $leafEnd) -}}
{{- /* Every verifier has trusted the next authority since an earlier upgrade: it may sign now. */ -}}
{{- $ca = buildCustomCert (get $data "next.crt") (get $data "next.key") -}}
{{- $caEnd = $stagedEnd -}}
{{- $_ := set $made "bundle" (printf "%s%s" $ca.Cert (get $data "issuer.crt" | b64dec)) -}}
{{- else if le $caEnd $horizon -}}
{{- /* Too late to announce it first: readers that still hold the old bundle are refused until theirs is renewed. */ -}}
{{- $ca = genCA $caName (int $o.caValidityDays) -}}
{{- $caEnd = $newCaEnd -}}
{{- $_ := set $made "bundle" (printf "%s%s" $ca.Cert (get $data "issuer.crt" | b64dec)) -}}
{{- else -}}
{{- $ca = buildCustomCert (get $data "issuer.crt") (get $data "issuer.key") -}}
{{- $_ := set $made "renewed" false -}}
{{- $_ := set $made "bundle" (get $data "ca.crt" | b64dec) -}}
{{- if hasKey $data "next.key" -}}
{{- $_ := set $made "staged" (dict "crt" (get $data "next.crt" | b64dec) "key" (get $data "next.key" | b64dec) "end" $stagedEnd) -}}
{{- else if lt $caEnd (add $leafEnd (sub $horizon ($now | unixEpoch | int64))) -}}
{{- /* Leaves signed soon would outlive this authority: announce the next one, to sign from a later upgrade on. */ -}}
{{- $next := genCA $caName (int $o.caValidityDays) -}}
{{- $_ := set $made "staged" (dict "crt" $next.Cert "key" $next.Key "end" $newCaEnd) -}}
{{- $_ := set $made "bundle" (printf "%s%s" $ca.Cert $next.Cert) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $made "caCrt" $ca.Cert -}}
{{- $_ := set $made "caKey" $ca.Key -}}
{{- $_ := set $made "caEnd" $caEnd -}}
{{- range $role, $c := include "devicemanager.tls.roles" . | fromYaml -}}
{{- $names := $c.names -}}
{{- $was := (lookup "v1" "Secret" $.Release.Namespace (include "devicemanager.tls.secretName" (list $ $role))) | default dict -}}
{{- $wasNotes := ($was.metadata | default dict).annotations | default dict -}}
{{- $end := get $wasNotes "devicemanager.gpustack.ai/not-after-epoch" | default "0" | int64 -}}
{{- $same := eq (get $wasNotes "devicemanager.gpustack.ai/names" | default "") (join "," $names) -}}
{{- if and (not $made.renewed) $same (gt $end $horizon) (hasKey ($was.data | default dict) "tls.crt") -}}
{{- $_ := set $made.leaves $role (dict "crt" (get $was.data "tls.crt" | b64dec) "key" (get $was.data "tls.key" | b64dec) "end" $end "names" $names) -}}
{{- else -}}
{{- /* A common name holds 64 bytes, and the alternative names are what is verified: a server's leaf carries none. */ -}}
{{- $leaf := genSignedCert (ternary (first $names) "" (eq $c.usage "client auth")) nil $names (int $o.validityDays) $ca -}}
{{- $_ := set $made.leaves $role (dict "crt" $leaf.Cert "key" $leaf.Key "end" $leafEnd "names" $names) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values.tls "made" $made -}}
{{- end -}}
{{- end -}}
