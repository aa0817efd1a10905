{{/* Environment by parts. Every variable is described in docs/configuration.md. */}}

{{- define "kapstone.envFromSecret" -}}
- name: {{ .key }}
  valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .from | default .key | quote }}}}
{{- end -}}

{{/* Where this deployment is in the cluster, for those who talk to the Kubernetes API. */}}
{{- define "kapstone.clusterEnv" -}}
- name: KAPSTONE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: KAPSTONE_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: KAPSTONE_RELEASE
  value: {{ include "kapstone.fullname" . }}
{{- end -}}

{{- define "kapstone.databaseEnv" -}}
{{- $key := ternary .Values.database.existingSecretKey "KAPSTONE_DATABASE_URL" (ne .Values.database.existingSecret "") -}}
{{- include "kapstone.envFromSecret" (dict "secret" (include "kapstone.databaseSecret" .) "key" "KAPSTONE_DATABASE_URL" "from" $key) -}}
{{- end -}}

{{/* A private CA, for whoever connects by a URL that names it as `sslrootcert`: runtimes are told what is in it. */}}
{{- define "kapstone.databaseCaMount" -}}
{{- if .Values.database.caSecret -}}
- {name: database-ca, mountPath: /etc/kapstone/database-ca, readOnly: true}
{{- end -}}
{{- end -}}
{{- define "kapstone.databaseCaVolume" -}}
{{- with .Values.database.caSecret -}}
- name: database-ca
  secret: {secretName: {{ . | quote }}}
{{- end -}}
{{- end -}}

{{/* PostgreSQL, object store and the keys that open what is sealed in them. */}}
{{- define "kapstone.storesEnv" -}}
{{ include "kapstone.databaseEnv" . }}
{{ include "kapstone.envFromSecret" (dict "secret" (include "kapstone.keysSecret" .) "key" "KAPSTONE_KEYS") }}
- name: KAPSTONE_OBJECTS
  value: s3
- name: KAPSTONE_S3_ENDPOINT
  value: {{ .Values.objects.endpoint | default (printf "http://%s-s3.%s.svc:7070" (include "kapstone.fullname" .) .Release.Namespace) | quote }}
- name: KAPSTONE_S3_REGION
  value: {{ .Values.objects.region | quote }}
- name: KAPSTONE_S3_BUCKET_PREFIX
  value: {{ .Values.objects.bucketPrefix | quote }}
{{ include "kapstone.envFromSecret" (dict "secret" (include "kapstone.objectsSecret" .) "key" "KAPSTONE_S3_ACCESS_KEY_ID") }}
{{ include "kapstone.envFromSecret" (dict "secret" (include "kapstone.objectsSecret" .) "key" "KAPSTONE_S3_SECRET_ACCESS_KEY") }}
{{- end -}}

{{/* What the pods of schedules have besides, as the operator reads it. */}}
{{- define "kapstone.firePod" -}}
{{- $pod := dict "imagePullPolicy" .Values.images.pullPolicy -}}
{{- range $field, $value := .Values.schedules -}}
{{- if $value -}}{{- $_ := set $pod $field $value -}}{{- end -}}
{{- end -}}
{{- if .Values.images.pullSecrets -}}
{{- $secrets := list -}}
{{- range .Values.images.pullSecrets -}}{{- $secrets = append $secrets (dict "name" .) -}}{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- toJson $pod -}}
{{- end -}}

{{/* Numbers of a file of values are floats here: as JSON 10000000 is not 1e+07. */}}
{{- define "kapstone.extraEnv" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}
