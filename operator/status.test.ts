import { expect, test } from "vitest";
import type { Kap } from "#platform/kap-resource.ts";
import { isSameStatus, type Observed, type PartState, statusOf } from "./status.ts";

const there: PartState = { status: "True", reason: "Present", message: "there" };
const missing: PartState = { status: "False", reason: "RepairFailed", message: "the schema is missing" };
const unasked: PartState = { status: "Unknown", reason: "NotLookedAfter", message: "not asked" };
const fine: Observed = { database: there, store: there, replicas: 0 };
const monday = new Date("2026-03-02T10:00:00.123Z");
const tuesday = new Date("2026-03-03T10:00:00.123Z");

function kapIn(state: Kap["spec"]["state"], status?: Kap["status"]): Kap {
  return {
    apiVersion: "kapstone.dev/v1",
    kind: "Kap",
    metadata: { name: "kap", generation: 4 },
    spec: {
      kapId: "k",
      orgId: "o",
      name: "Kap",
      slug: "kap",
      address: "http://kap.kaps.localhost",
      state,
      revision: 9,
      versionId: null,
      version: 0,
      audience: "members",
      database: { schema: "s", role: "s" },
      bucket: "b",
      schedules: [],
      hasIntervals: false,
    },
    ...(status && { status }),
  };
}
const condition = (status: NonNullable<Kap["status"]>, type: string) => status.conditions.find((known) => known.type === type);

test.each([
  ["active", fine, "Idle", "True", "Idle"],
  ["active", { ...fine, replicas: 2 }, "Running", "True", "Serving"],
  ["active", { ...fine, store: unasked }, "Idle", "True", "Idle"],
  ["active", { ...fine, database: missing, replicas: 1 }, "Degraded", "False", "RepairFailed"],
  ["active", { ...fine, store: missing }, "Degraded", "False", "RepairFailed"],
  ["disabled", fine, "Disabled", "False", "Disabled"],
  ["disabled", { ...fine, database: missing }, "Disabled", "False", "Disabled"],
  ["deleted", fine, "Deleted", "False", "Deleted"],
] as const)("a kap that is %s, with %j, is %s and Ready=%s for %s", (state, observed, phase, ready, reason) => {
  const status = statusOf(kapIn(state), observed, monday);
  expect(status).toMatchObject({ phase, replicas: observed.replicas, observedGeneration: 4, observedRevision: 9 });
  expect(condition(status, "Ready")).toMatchObject({ status: ready, reason });
});

test("a condition keeps its time until its status turns", () => {
  const first = statusOf(kapIn("active"), fine, monday);
  expect(condition(first, "Ready")?.lastTransitionTime).toBe("2026-03-02T10:00:00Z");
  const same = statusOf(kapIn("active", first), fine, tuesday);
  expect(isSameStatus(first, same)).toBe(true);
  const serving = statusOf(kapIn("active", first), { ...fine, replicas: 1 }, tuesday);
  expect(isSameStatus(first, serving)).toBe(false);
  expect(condition(serving, "Ready")).toMatchObject({ reason: "Serving", lastTransitionTime: "2026-03-02T10:00:00Z" });
  const broken = statusOf(kapIn("active", first), { ...fine, database: missing }, tuesday);
  expect(condition(broken, "Ready")?.lastTransitionTime).toBe("2026-03-03T10:00:00Z");
  expect(condition(broken, "StoreReady")?.lastTransitionTime).toBe("2026-03-02T10:00:00Z");
});

test("a status that somebody changed or emptied is not the same", () => {
  const status = statusOf(kapIn("active"), fine, monday);
  expect(isSameStatus(undefined, status)).toBe(false);
  expect(isSameStatus({ ...status, conditions: [] }, status)).toBe(false);
  expect(isSameStatus({ ...status, phase: "Running" }, status)).toBe(false);
  expect(isSameStatus({ ...status, conditions: [...status.conditions].reverse() }, status)).toBe(true);
});
