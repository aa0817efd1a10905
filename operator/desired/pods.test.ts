import { expect, test } from "vitest";
import type { Kap } from "#platform/kap-resource.ts";
import type { Pod } from "#platform/kubernetes/objects.ts";
import { adoptionPatch, controlAddressOf, disownPatch, reasonToEnd } from "./pods.ts";

const address = "tcp:10.0.0.7:9001";
const kap = { apiVersion: "kapstone.dev/v1", kind: "Kap", metadata: { name: "shop", uid: "kap-uid" } } as Kap;

function podWith(
  given: { labels?: Record<string, string>; restarts?: number; annotations?: Record<string, string> } & Partial<Pod["metadata"]> = {},
): Pod {
  const { labels = { "kapstone.dev/runtime": "warm" }, restarts = 0, ...metadata } = given;
  return {
    metadata: { name: "pod", uid: "pod-uid", labels, ...metadata },
    status: { phase: "Running", podIP: "10.0.0.7", containerStatuses: [{ name: "runtime", ready: true, restartCount: restarts }] },
  };
}
const claimed = { "kapstone.dev/runtime": "claimed", "kapstone.dev/kap-id": "kap-1", "kapstone.dev/kap": "shop" };
const named = new Map([[address, {}]]);
const nobody = new Map<string, unknown>();

test("the control address is as the gateways write it", () => {
  expect(controlAddressOf(podWith())).toBe(address);
  expect(controlAddressOf({ metadata: { name: "p" }, status: { podIP: "fd00::7" } })).toBe("tcp:[fd00::7]:9001");
  expect(controlAddressOf({ metadata: { name: "p" } })).toBeUndefined();
});

test("adopting takes the pod out of the pool, gives it to the kap and notes its restarts; it is for this pod only", () => {
  const replicaSet = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "pool", uid: "rs", controller: true };
  expect(adoptionPatch(podWith({ restarts: 3, ownerReferences: [replicaSet] }), "kap-1", kap)).toEqual({
    metadata: {
      uid: "pod-uid",
      labels: claimed,
      annotations: { "kapstone.dev/restarts": "3" },
      ownerReferences: [{ apiVersion: "kapstone.dev/v1", kind: "Kap", name: "shop", uid: "kap-uid" }],
    },
  });
});

test("an adopted pod is left alone, but for a resource that was made anew: then it gets the new owner, and its restarts stay noted", () => {
  const ownerReferences = [{ apiVersion: "kapstone.dev/v1", kind: "Kap", name: "shop", uid: "kap-uid" }];
  const adopted = podWith({ labels: claimed, restarts: 1, annotations: { "kapstone.dev/restarts": "1" }, ownerReferences });
  expect(adoptionPatch(adopted, "kap-1", kap)).toBeNull();
  const anew = { ...kap, metadata: { ...kap.metadata, uid: "newer" } };
  expect(adoptionPatch(adopted, "kap-1", anew)).toMatchObject({ metadata: { ownerReferences: [{ uid: "newer" }], annotations: {} } });
  // One that is being deleted must not get it back.
  const ending = { ...kap, metadata: { ...kap.metadata, deletionTimestamp: "2026-03-02T10:00:00Z" } };
  expect(adoptionPatch(adopted, "kap-1", ending)).toBeNull();
});

test("a pod of a kap without a resource is adopted without an owner", () => {
  expect(adoptionPatch(podWith(), "kap-1", undefined)).toMatchObject({
    metadata: { labels: { "kapstone.dev/kap-id": "kap-1" }, ownerReferences: [] },
  });
});

test("disowning removes all owners, once", () => {
  expect(disownPatch(podWith())).toBeNull();
  const owned = podWith({ ownerReferences: [{ apiVersion: "kapstone.dev/v1", kind: "Kap", name: "shop", uid: "kap-uid" }] });
  expect(disownPatch(owned)).toEqual({ metadata: { uid: "pod-uid", ownerReferences: null } });
});

test.each([
  ["a warm pod", podWith(), nobody, false, null],
  ["a warm pod that a row names (it is adopted)", podWith(), named, false, null],
  ["a warm pod that was given up", podWith(), nobody, true, "the gateway discarded it"],
  ["a warm pod that was given up, but is named since", podWith(), named, true, null],
  ["a claimed pod that a row names", podWith({ labels: claimed, annotations: { "kapstone.dev/restarts": "0" } }), named, false, null],
  ["a claimed pod that no row names", podWith({ labels: claimed }), nobody, false, "its runtime was released"],
  [
    "a claimed pod whose container restarted",
    podWith({ labels: claimed, restarts: 2, annotations: { "kapstone.dev/restarts": "1" } }),
    named,
    false,
    "its container restarted since it was claimed",
  ],
  ["a pod that ends already", podWith({ labels: claimed, deletionTimestamp: "2026-03-02T10:00:00Z" }), nobody, false, null],
  ["a pod that failed", { ...podWith(), status: { phase: "Failed" } }, nobody, false, "the pod failed"],
] as const)("%s: %#", (_what, pod, rows, isDiscarded, reason) => {
  expect(reasonToEnd(pod, rows, isDiscarded)).toBe(reason);
});
