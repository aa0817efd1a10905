import { afterAll, beforeAll, expect, test } from "vitest";
import { isPodReady, type Pod } from "../../../platform/kubernetes/objects.ts";
import { signUpOrg } from "../../harness/org.ts";
import { until } from "../../harness/wait.ts";
import { kubectl } from "../namespace.ts";
import { clientPod, clientPort } from "./client.ts";
import { openRelease, type Release, releaseName } from "./release.ts";

const release: Release = await openRelease();
afterAll(() => release.close());
const waitMs = { timeoutMs: 90_000 };
/** A closed door says nothing; one that is to be open has longer, for a name that is asked for twice. */
const silentMs = { closed: 4_000, open: 15_000 };

/** Every door in reach, each with somebody behind it: `host:port` by name. */
const doors: Record<string, string> = {};
/** Who knocks: pods by name; of two of a kind the first is a door, the second knocks. */
const knocking: Record<string, string> = {};

/** Warm pods that are Ready, once there are two. */
const twoWarm = (): Promise<Pod[]> =>
  until(async () => {
    const ready = (await release.pods("runtime", "kapstone.dev/runtime=warm")).filter(isPodReady);
    return ready.length >= 2 && ready;
  }, waitMs);

beforeAll(async () => {
  const org = await signUpOrg(release);
  const runtimes: Pod[] = [];
  await twoWarm(); // for the two kaps, whatever the file before has left
  for (const name of ["one", "two"]) {
    const kap = await org.createKap(`export default () => new Response("${name}");`);
    expect((await kap.call()).text).toBe(name);
    runtimes.push(await until(async () => (await release.pods("runtime", `kapstone.dev/kap=${kap.slug}`))[0], waitMs));
  }
  const [apis, operators] = [await release.pods("api"), await release.pods("operator")];
  // Those that were claimed just now have successors, which take a moment.
  const warm = await twoWarm();
  const [postgres, s3, ingest] = await Promise.all(
    ["postgres", "s3", "mail-ingest"].map(async (part) => (await release.pods(part))[0] as Pod),
  );
  const door = (name: string, pod: Pod | undefined, port: number): void => {
    if (!pod?.status?.podIP) throw new Error(`there is no pod for ${name}`);
    doors[name] = `${pod.status.podIP}:${port}`;
  };
  door("api", apis[0], 8080);
  door("api, internal", apis[0], 8081);
  door("operator", operators[0], 8082);
  door("mail", ingest, 2525);
  door("mail, monitoring", ingest, 8082);
  door("postgres", postgres, 5432);
  door("s3", s3, 7070);
  door("runtime of another kap, calls", runtimes[0], 9000);
  door("runtime of another kap, control", runtimes[0], 9001);
  door("warm runtime, control", warm[0], 9001);
  door("pod of somebody else", JSON.parse(await release.kubectl("get", "pod", clientPod, "-o", "json")) as Pod, clientPort);
  const endpoints = await kubectl("-n", "default", "get", "endpointslices", "-l", "kubernetes.io/service-name=kubernetes", "-o", "json");
  const [slice] = (JSON.parse(endpoints) as { items: { endpoints: { addresses: string[] }[]; ports: { port: number }[] }[] }).items;
  doors.kubernetes = `${slice?.endpoints[0]?.addresses[0]}:${slice?.ports[0]?.port}`;
  doors["kubernetes, by its Service"] = "kubernetes.default.svc:443";
  doors.kubelet = `${await kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}")}:10250`;
  doors["metadata of the cloud"] = "169.254.169.254:80";
  Object.assign(knocking, {
    runtime: runtimes[1]?.metadata.name,
    "warm runtime": warm[1]?.metadata.name,
    api: apis[1]?.metadata.name,
    operator: operators[1]?.metadata.name,
    mail: ingest?.metadata.name,
    somebody: clientPod,
  });
}, 300_000);

const script = `
const { connect } = require("node:net");
const [doors, toBeOpen] = process.argv.slice(1).map((text) => JSON.parse(text));
const knock = (name, address) => new Promise((resolve) => {
  const at = address.lastIndexOf(":");
  const socket = connect({ host: address.slice(0, at), port: Number(address.slice(at + 1)) });
  const settle = (isOpen) => { socket.destroy(); resolve(isOpen); };
  socket.setTimeout(toBeOpen.includes(name) ? ${silentMs.open} : ${silentMs.closed}, () => settle(false));
  socket.once("connect", () => settle(true)).once("error", () => settle(false));
});
Promise.all(Object.entries(doors).map(async ([name, address]) => (await knock(name, address)) ? [name] : []))
  .then((open) => { console.log(JSON.stringify(open.flat().sort())); process.exit(0); });
`;

/** Which doors are open to a pod. */
async function openTo(who: string, toBeOpen: string[]): Promise<string[]> {
  const given = [doors, toBeOpen].map((value) => JSON.stringify(value));
  const said = await release.kubectl("exec", knocking[who] as string, "--", "node", "-e", script, ...given);
  return JSON.parse(said) as string[];
}

const internal = ["api, internal", "postgres"];
const runtimes = ["runtime of another kap, calls", "runtime of another kap, control", "warm runtime, control"];
const kubernetes = ["kubernetes", "kubernetes, by its Service"];

test.each([
  ["runtime", internal],
  ["warm runtime", internal],
  ["mail", ["api, internal"]],
  ["operator", ["postgres", "s3", ...kubernetes]],
  ["api", ["postgres", "s3", ...kubernetes, ...runtimes]],
])("what pods of the part %s reach is what they need", async (who, expected) => {
  // A pod's own doors are in reach of itself alone.
  const own = who === "mail" ? ["mail", "mail, monitoring"] : [];
  expect((await openTo(who, expected)).filter((name) => !own.includes(name))).toEqual([...expected].sort());
});

test("a pod of somebody else reaches the public listener and mail, and no other part", async () => {
  const expected = ["api", "mail", "pod of somebody else"];
  const parts = (await openTo("somebody", expected)).filter((name) => !kubernetes.includes(name) && name !== "kubelet");
  expect(parts).toEqual(expected);
});

test("a kap's pod knows names of the cluster and nothing else to talk to about them", async () => {
  const lookUp = `require("node:dns").lookup("${releaseName}-api-internal.${release.namespace}.svc", (error, address) => console.log(error?.code ?? address))`;
  const said = await release.kubectl("exec", knocking.runtime as string, "--", "node", "-e", lookUp);
  expect(said.trim()).toBe(await release.kubectl("get", "service", `${releaseName}-api-internal`, "-o", "jsonpath={.spec.clusterIP}"));
});
