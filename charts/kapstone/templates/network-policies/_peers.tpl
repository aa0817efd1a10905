{{/* Pods of this release, by part: a peer. Call with (dict "root" $ "component" "api"). */}}
{{- define "kapstone.peer" -}}
- podSelector:
    matchLabels: {{- include "kapstone.policySelector" . | nindent 6 }}
{{- end -}}

{{/* Pods the operator makes (schedules) are part of this as well. */}}
{{- define "kapstone.policySelector" -}}
app.kubernetes.io/instance: {{ include "kapstone.fullname" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kapstone.egressDns" -}}
- to: {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* The public internet: every address but private and link-local ones, the cloud's metadata among them. */}}
{{- define "kapstone.egressInternet" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: {{- toYaml .Values.networkPolicy.privateCidrs | nindent 10 }}
    - ipBlock:
        cidr: ::/0
        except: {{- toYaml .Values.networkPolicy.privateCidrs6 | nindent 10 }}
{{- end -}}

{{/* The Kubernetes API server. Policies see its own address, not the Service's, and no label names it. */}}
{{- define "kapstone.egressKubernetes" -}}
- {{- with .Values.networkPolicy.kubernetesCidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
  ports:
    {{- range .Values.networkPolicy.kubernetesPorts }}
    - {port: {{ . }}}
    {{- end }}
{{- end -}}

{{- define "kapstone.egressDatabase" -}}
{{- if .Values.database.existingSecret }}
- to: {{- toYaml .Values.database.peers | nindent 4 }}
  ports:
    - {port: {{ .Values.database.port }}}
{{- else }}
- to: {{- include "kapstone.peer" (dict "root" . "component" "postgres") | nindent 4 }}
  ports:
    - {port: 5432}
{{- end }}
{{- end -}}

{{/* What runtimes reach besides, when a pooler stands between them and the server. */}}
{{- define "kapstone.egressPooler" -}}
{{- with .Values.database.kapHost }}
- to: {{- toYaml $.Values.database.peers | nindent 4 }}
  ports:
    - {port: {{ regexFind ":[0-9]+$" . | trimPrefix ":" | default 5432 }}}
{{- end }}
{{- end -}}

{{- define "kapstone.egressObjects" -}}
{{- if .Values.objects.endpoint }}
{{- $url := urlParse .Values.objects.endpoint }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (eq $url.scheme "https" | ternary 443 80) }}
- {{- with .Values.objects.peers }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {port: {{ .Values.objects.port | default $port }}}
{{- else }}
- to: {{- include "kapstone.peer" (dict "root" . "component" "s3") | nindent 4 }}
  ports:
    - {port: 7070}
{{- end }}
{{- end -}}

{{/* Who may scrape one part's port. Call with (dict "root" $ "port" 8081). */}}
{{- define "kapstone.ingressMetrics" -}}
{{- with .root.Values.networkPolicy.metricsFrom }}
- from: {{- toYaml . | nindent 4 }}
  ports:
    - {port: {{ $.port }}}
{{- end }}
{{- end -}}

{{- define "kapstone.policyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "kapstone.fullname" .root }}-{{ .component }}
  labels: {{- include "kapstone.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "kapstone.policySelector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end -}}
