/** The fields with which a pod meets the Pod Security Standard "restricted", and has no way to the API server. */
export const restrictedPod = {
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  securityContext: { runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, seccompProfile: { type: "RuntimeDefault" } },
};

/** Those of its containers. */
export const restrictedContainer = {
  securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
};
