{{/*
Secrets the chart makes: what is in the cluster already stays, what is missing is made. Kept in .Values for the time of one rendering, so that
the Secret and the checksums of those who read it say the same. All values base64.
*/}}
{{- define "kapstone.makeSecrets" -}}
{{- if not (hasKey .Values "made") -}}
{{- $namespace := .Release.Namespace -}}
{{- $name := include "kapstone.fullname" . -}}
{{- $made := dict -}}

{{- if not .Values.keys.existingSecret -}}
{{- $keys := (lookup "v1" "Secret" $namespace (printf "%s-keys" $name)).data | default dict -}}
{{- $fire := (lookup "v1" "Secret" $namespace (printf "%s-fire" $name)).data | default dict -}}
{{- $claim := dict "KAPSTONE_CLAIM_KEY" $keys.KAPSTONE_CLAIM_KEY "KAPSTONE_CLAIM_PUBLIC_KEY" $keys.KAPSTONE_CLAIM_PUBLIC_KEY -}}
{{- if not (and $keys.KAPSTONE_CLAIM_KEY $keys.KAPSTONE_CLAIM_PUBLIC_KEY) -}}
{{- /* A certificate is how a template can tell a key's public half; nothing else of it is used. */ -}}
{{- $private := genPrivateKey "ed25519" -}}
{{- $certificate := genSelfSignedCertWithKey "kapstone" nil nil 36500 $private -}}
{{- $claim = dict "KAPSTONE_CLAIM_KEY" (b64enc $private) "KAPSTONE_CLAIM_PUBLIC_KEY" (b64enc $certificate.Cert) -}}
{{- end -}}
{{- $_ := set $made "keys" (merge $claim (dict
  "KAPSTONE_KEYS" ($keys.KAPSTONE_KEYS | default (randBytes 32 | b64enc))
  "KAPSTONE_INGEST_TOKEN" ($keys.KAPSTONE_INGEST_TOKEN | default (randAlphaNum 43 | b64enc)))) -}}
{{- $_ := set $made "fire" (dict "KAPSTONE_FIRE_TOKEN" ($fire.KAPSTONE_FIRE_TOKEN | default (randAlphaNum 43 | b64enc))) -}}
{{- end -}}

{{- if not .Values.database.existingSecret -}}
{{- $old := (lookup "v1" "Secret" $namespace (printf "%s-postgres" $name)).data | default dict -}}
{{- $password := $old.KAPSTONE_DATABASE_PASSWORD | default (randAlphaNum 32 | b64enc) -}}
{{- $admin := $old.POSTGRES_PASSWORD | default (randAlphaNum 32 | b64enc) -}}
{{- $server := printf "%s-postgres.%s.svc:5432" $name $namespace -}}
{{- $_ := set $made "postgres" (dict
  "POSTGRES_PASSWORD" $admin
  "KAPSTONE_ADMIN_DATABASE_URL" (printf "postgres://postgres:%s@%s/postgres" (b64dec $admin) $server | b64enc)
  "KAPSTONE_DATABASE_PASSWORD" $password
  "KAPSTONE_DATABASE_URL" (printf "postgres://kapstone:%s@%s/kapstone" (b64dec $password) $server | b64enc)) -}}
{{- end -}}

{{- if not .Values.objects.endpoint -}}
{{- $old := (lookup "v1" "Secret" $namespace (printf "%s-s3" $name)).data | default dict -}}
{{- $_ := set $made "s3" (dict
  "KAPSTONE_S3_ACCESS_KEY_ID" ($old.KAPSTONE_S3_ACCESS_KEY_ID | default (randAlphaNum 20 | b64enc))
  "KAPSTONE_S3_SECRET_ACCESS_KEY" ($old.KAPSTONE_S3_SECRET_ACCESS_KEY | default (randAlphaNum 40 | b64enc))) -}}
{{- end -}}

{{- $test := (lookup "v1" "Secret" $namespace (printf "%s-test" $name)).data | default dict -}}
{{- $_ := set $made "test" (dict "PASSWORD" ($test.PASSWORD | default (randAlphaNum 32 | b64enc))) -}}
{{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- end -}}

{{/* Changes when a Secret's content changes, so that its readers roll; to be quoted: of digits alone, or with one e, it would be a number. Call with (dict "root" $ "made" "keys" "name" "a-secret" "only" "KEY"). */}}
{{- define "kapstone.secretChecksum" -}}
{{- include "kapstone.makeSecrets" .root -}}
{{- $data := get .root.Values.made .made | default dict -}}
{{- if not $data -}}
{{- $data = (lookup "v1" "Secret" .root.Release.Namespace .name).data | default dict -}}
{{- end -}}
{{- if .only -}}{{- $data = pick $data .only -}}{{- end -}}
{{- toJson $data | sha256sum | trunc 16 -}}
{{- end -}}

{{- define "kapstone.keysSecret" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "kapstone.fullname" .)) -}}
{{- end -}}
{{- define "kapstone.fireSecret" -}}
{{- .Values.keys.existingSecret | default (printf "%s-fire" (include "kapstone.fullname" .)) -}}
{{- end -}}
{{- define "kapstone.databaseSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-postgres" (include "kapstone.fullname" .)) -}}
{{- end -}}
{{/* A superuser's login, for the init container only: the bundled server's, or one given; else nothing. */}}
{{- define "kapstone.adminDatabaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{- .Values.database.adminExistingSecret -}}
{{- else -}}
{{- include "kapstone.fullname" . }}-postgres
{{- end -}}
{{- end -}}
{{- define "kapstone.objectsSecret" -}}
{{- .Values.objects.existingSecret | default (printf "%s-s3" (include "kapstone.fullname" .)) -}}
{{- end -}}
