{{/*
The prefix of every object's name: the release's name where it says kapstone already. At most 36 characters, so that suffixes fit. A release may
have dots and begin with a digit, a Service may not.
*/}}
{{- define "kapstone.fullname" -}}
{{- $name := contains "kapstone" .Release.Name | ternary .Release.Name (printf "%s-kapstone" .Release.Name) -}}
{{- $name = regexReplaceAll "^([0-9])" (replace "." "-" $name) "k${1}" -}}
{{- .Values.fullnameOverride | default $name | trunc 36 | trimAll "-" -}}
{{- end -}}

{{/* What selects the pods of one part. Call with (dict "root" $ "component" "api"). */}}
{{- define "kapstone.selector" -}}
app.kubernetes.io/name: kapstone
app.kubernetes.io/instance: {{ include "kapstone.fullname" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object of one part. */}}
{{- define "kapstone.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: kapstone
{{ include "kapstone.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image of one part. Call with (dict "root" $ "image" .Values.images.api). */}}
{{- define "kapstone.image" -}}
{{- $images := .root.Values.images -}}
{{- $tag := .image.tag | default $images.tag | default .root.Chart.AppVersion -}}
{{- if $images.registry -}}{{ trimSuffix "/" $images.registry }}/{{- end -}}
{{ .image.repository }}:{{ $tag }}
{{- end -}}

{{- define "kapstone.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Pod Security "restricted", as the user the images are made for. */}}
{{- define "kapstone.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kapstone.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Where the pods of one part may run. Call with (dict "root" $ "component" "api" "part" .Values.api). */}}
{{- define "kapstone.scheduling" -}}
{{- with .part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .part.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .root.Values.topologySpread }}
{{- if .whenUnsatisfiable }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .topologyKey | quote }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{- include "kapstone.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kapstone.scheme" -}}
{{- .Values.scheme | default (ternary "https" "http" (or .Values.ingress.enabled .Values.gateway.enabled)) -}}
{{- end -}}

{{/* Whether the outward addresses are those of the port-forward that the notes open. */}}
{{- define "kapstone.isForwarded" -}}
{{- if and (eq .Values.domain "localhost") (eq (include "kapstone.scheme" .) "http") (not (or .Values.ingress.enabled .Values.gateway.enabled)) -}}true{{- end -}}
{{- end -}}

{{- define "kapstone.publicPort" -}}
{{- if .Values.publicPort -}}
{{- int .Values.publicPort -}}
{{- else if include "kapstone.isForwarded" . -}}
8080
{{- else -}}
{{- ternary "443" "80" (eq (include "kapstone.scheme" .) "https") -}}
{{- end -}}
{{- end -}}

{{- define "kapstone.internalUrl" -}}
http://{{ include "kapstone.fullname" . }}-api-internal.{{ .Release.Namespace }}.svc:8081
{{- end -}}

{{/* The TLS Secret of the hosts, or nothing. */}}
{{- define "kapstone.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{- .Values.tls.existingSecret -}}
{{- else if .Values.tls.certManager.enabled -}}
{{- include "kapstone.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{- define "kapstone.mailTlsSecret" -}}
{{- .Values.mailIngest.tls.existingSecret | default (include "kapstone.tlsSecret" .) -}}
{{- end -}}

{{/* Memory limit of a runtime pod: 7 times the isolate's, which holds a full isolate with its external buffers, the child, the spare and the supervisor. */}}
{{- define "kapstone.runtimeResources" -}}
{{- $resources := deepCopy .Values.runtime.resources -}}
{{- $least := mul 7 (int .Values.runtime.kapMemoryMb) -}}
{{- $limits := $resources.limits | default dict -}}
{{- if $limits.memory -}}
{{- if lt (int64 (include "kapstone.mebibytes" $limits.memory)) (int64 $least) -}}
{{- fail (printf "runtime.resources.limits.memory is %s, less than 7 times runtime.kapMemoryMb (%dMi): one full isolate would end its pod. Raise it, leave it out, or lower runtime.kapMemoryMb." $limits.memory $least) -}}
{{- end -}}
{{- else -}}
{{- $limits = set $limits "memory" (printf "%dMi" $least) -}}
{{- end -}}
{{- toYaml (set $resources "limits" $limits) -}}
{{- end -}}

{{/* A memory quantity in MiB, rounded down. */}}
{{- define "kapstone.mebibytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if eq $unit "Gi" -}}{{- mul $number 1024 -}}
{{- else if eq $unit "Mi" -}}{{- $number -}}
{{- else if eq $unit "G" -}}{{- div (mul $number 1000000000) 1048576 -}}
{{- else if eq $unit "M" -}}{{- div (mul $number 1000000) 1048576 -}}
{{- else if eq $unit "" -}}{{- div $number 1048576 -}}
{{- else -}}{{- fail (printf "%s is no memory quantity this chart understands: write it in Mi or Gi" $text) -}}
{{- end -}}
{{- end -}}

{{/* Whether this release brings the definition of Kap resources: not where another release, or somebody by hand, has. */}}
{{- define "kapstone.bringsCrd" -}}
{{- if .Values.crd.install -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "kaps.kapstone.dev" | default dict -}}
{{- $owner := dig "metadata" "annotations" dict $there -}}
{{- $isOwn := and (eq (get $owner "meta.helm.sh/release-name") .Release.Name) (eq (get $owner "meta.helm.sh/release-namespace") .Release.Namespace) -}}
{{- if or (not $there) $isOwn -}}true{{- end -}}
{{- end -}}
{{- end -}}
