import { afterAll, expect, test } from "vitest";
import { kubectl } from "../namespace.ts";
import { openRelease, releaseName } from "./release.ts";

const release = await openRelease();
afterAll(() => release.close());

/** Everything a service account may do in a namespace, one line a resource; without what the cluster grants to every account. */
async function rightsOf(account: string, namespace = release.namespace): Promise<string[]> {
  const may = async (who: string): Promise<string[]> => {
    const user = `system:serviceaccount:${release.namespace}:${who}`;
    const groups = ["system:serviceaccounts", `system:serviceaccounts:${release.namespace}`, "system:authenticated"];
    const impersonated = [`--as=${user}`, ...groups.map((group) => `--as-group=${group}`)];
    const lines = (await kubectl("-n", namespace, "auth", "can-i", "--list", ...impersonated)).trimEnd().split("\n");
    return lines.slice(1).map((line) => line.replace(/\[\]/g, "").replace(/\s+/g, " ").trim());
  };
  const everybody = new Set(await may("nobody-at-all"));
  return (await may(account)).filter((line) => !everybody.has(line)).sort();
}

test("the API may project kaps and see pods, and nothing more", async () => {
  expect(await rightsOf(`${releaseName}-api`)).toEqual(["kaps.kapstone.dev [list create patch delete]", "pods [list watch]"]);
});

test("the operator may tell of kaps, move pods and drive schedules, and nothing more", async () => {
  expect(await rightsOf(`${releaseName}-operator`)).toEqual([
    "cronjobs.batch [list watch create patch delete]",
    "events [create patch]",
    "kaps.kapstone.dev [list watch patch]",
    "kaps.kapstone.dev/finalizers [update]",
    "kaps.kapstone.dev/status [patch]",
    "leases.coordination.k8s.io [create]",
    "leases.coordination.k8s.io [kapstone-operator] [get update]",
    "pods [list watch patch delete]",
  ]);
});

test("everything else may do nothing", async () => {
  for (const account of [`${releaseName}-powerless`, "default"]) expect(await rightsOf(account), account).toEqual([]);
});

test("nobody has a right outside the namespace of the release", async () => {
  for (const account of ["api", "operator", "powerless"])
    expect(await rightsOf(`${releaseName}-${account}`, "kube-system"), account).toEqual([]);
});

test("runtimes, mail ingest and the bundled servers have no token mounted", async () => {
  for (const component of ["runtime", "mail-ingest", "postgres", "s3"]) {
    const pods = await release.pods(component);
    expect(pods.length, component).toBeGreaterThan(0);
    expect(JSON.stringify(pods), component).not.toContain("/var/run/secrets/kubernetes.io");
  }
});
