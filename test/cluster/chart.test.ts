import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { clusterSettings } from "../../api/cluster/settings.ts";
import { apiSettings } from "../../api/config.ts";
import { mailIngestSettings } from "../../mail-ingest/config.ts";
import { operatorSettings } from "../../operator/config.ts";
import { runtimeSettings } from "../../runtime/settings.ts";
import { chartFolder, helm, type Manifest, podsOf, render } from "./chart.ts";

const production = ["--values", join(chartFolder, "values-production.yaml")];
const everything = [
  ...production,
  "--set=gateway.enabled=true,gateway.parentRefs[0].name=public",
  "--set=api.autoscaling.enabled=true",
  "--set=runtime.runtimeClassName=gvisor,runtime.priorityClassName=kaps",
];
const profiles: Record<string, string[]> = { quickstart: [], production };

test.each([
  ["quickstart", []],
  ["development", ["--values", join(chartFolder, "values-dev.yaml")]],
  ["production", production],
])("helm lint finds nothing in the profile %s", async (_, args) => {
  expect(await helm("lint", "--strict", chartFolder, ...args)).toContain("0 chart(s) failed");
});

/** Without what differs from rendering to rendering (secrets that are made, checksums over them) or is the same on every object (labels of the chart). */
function settled(text: string): string {
  return text
    .replace(/^( +kapstone\.dev\/(?:keys|fire|database|objects|relay|claim-key)): "[0-9a-f]{16}"$/gm, "$1: CHECKSUM")
    .replace(/^( {2}[A-Z][A-Z0-9_]+): [A-Za-z0-9+/]+=*$/gm, "$1: SECRET")
    .replace(/^ +(?:helm\.sh\/chart|app\.kubernetes\.io\/(?:version|managed-by|part-of)): .*\n/gm, "")
    .replace(/^# Source: .*\n/gm, "")
    .replace(/^ +$\n/gm, "");
}

test.each(Object.entries(profiles))("the profile %s renders what its snapshot shows", async (name, args) => {
  await expect(settled((await render(...args)).text)).toMatchFileSnapshot(`snapshots/${name}.yaml`);
});

describe.each([...Object.entries(profiles), ["everything", everything] as const])("the profile %s", (_, args) => {
  let objects: Manifest[];
  beforeAll(async () => {
    ({ objects } = await render(...args));
  });

  test("every pod meets the Pod Security Standard restricted, with a read-only root and no service links", () => {
    const pods = podsOf(objects);
    expect(pods.length).toBeGreaterThan(4);
    for (const { of, spec } of pods) {
      expect(spec.securityContext, of).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
      expect(spec.securityContext.runAsUser, of).toBeGreaterThan(0);
      expect(spec.enableServiceLinks, of).toBe(false);
      expect([spec.hostNetwork, spec.hostPID, spec.hostIPC], of).toEqual([undefined, undefined, undefined]);
      for (const container of [...spec.containers, ...(spec.initContainers ?? [])]) {
        expect(container.securityContext, `${of} ${container.name}`).toMatchObject({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
        expect(container.securityContext.capabilities.add, of).toBeUndefined();
      }
      for (const volume of spec.volumes ?? []) expect(volume.hostPath, of).toBeUndefined();
    }
  });

  test("only the API, the operator and the clean-up at uninstall have a service-account token, each an account of its own", () => {
    const withToken = podsOf(objects).filter(({ spec }) => spec.automountServiceAccountToken !== false);
    expect(withToken.map(({ of }) => of).sort()).toEqual([
      "Deployment/kapstone-api",
      "Deployment/kapstone-operator",
      "Job/kapstone-uninstall",
    ]);
    expect(new Set(withToken.map(({ spec }) => spec.serviceAccountName)).size).toBe(3);
    for (const { of, spec } of podsOf(objects)) expect(spec.serviceAccountName, of).toBeTruthy();
  });

  test("nobody may read Secrets, and nothing is granted beyond the namespace", () => {
    expect(objects.filter(({ kind }) => /^ClusterRole/.test(kind))).toEqual([]);
    for (const { metadata, rules } of objects.filter(({ kind }) => kind === "Role")) {
      for (const rule of rules) {
        expect(rule.resources, metadata.name).not.toContain("secrets");
        expect([...rule.resources, ...rule.verbs, ...rule.apiGroups], metadata.name).not.toContain("*");
      }
    }
  });

  test("each variable a container is given is one its process reads", () => {
    const known: Record<string, object> = {
      api: { ...apiSettings, ...clusterSettings },
      operator: operatorSettings,
      "mail-ingest": mailIngestSettings,
      runtime: runtimeSettings,
    };
    const extra = ["KAPSTONE_POD_NAME"];
    for (const { spec } of podsOf(objects)) {
      for (const container of spec.containers) {
        const settings = known[container.name];
        if (!settings) continue;
        const read = Object.values(settings).map((each: { env: string }) => each.env);
        for (const { name } of container.env) expect([...read, ...extra], container.name).toContain(name);
      }
    }
  });

  test("every pod is closed by a network policy of its part, in and out", () => {
    const policies = objects.filter(({ kind }) => kind === "NetworkPolicy");
    for (const { of, metadata } of podsOf(objects)) {
      const own = policies.filter(({ spec }) =>
        Object.entries(spec.podSelector.matchLabels).every(([name, value]) => metadata.labels[name] === value),
      );
      expect(own.length, of).toBe(2); // the closed one and its own
      for (const { spec } of own) expect(spec.policyTypes, of).toEqual(["Ingress", "Egress"]);
    }
  });

  test("names are unique, and every object belongs to the release", () => {
    const names = objects.map(({ apiVersion, kind, metadata }) => `${apiVersion} ${kind} ${metadata.name}`);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
    for (const { kind, metadata } of objects.filter(({ kind }) => kind !== "CustomResourceDefinition"))
      expect(metadata.labels, `${kind} ${metadata.name}`).toMatchObject({ "app.kubernetes.io/instance": "kapstone" });
  });
});

describe("runtime pods", () => {
  const pool = async (...args: string[]): Promise<Manifest> =>
    podsOf((await render("--set=keys.existingSecret=given", ...args)).objects).find(({ of }) => of === "Deployment/kapstone-pool");

  test("are replaced by no change that does not concern them", async () => {
    const before = await pool("--set=images.runtime.tag=v1");
    const after = await pool(
      "--set=images.runtime.tag=v1,images.tag=v2,domain=example.com,api.replicas=4,commonLabels.team=x,ingress.enabled=true",
      "--set=api.env.KAPSTONE_CALLS_PER_MINUTE=1,operator.replicas=2,runtime.poolSize=9,mailIngest.enabled=false",
    );
    expect(after).toEqual(before);
    expect(await pool("--set=images.runtime.tag=v2")).not.toEqual(before);
  });

  test("have seven times the memory of an isolate, and no less", async () => {
    const limit = (pod: Manifest): string => pod.spec.containers[0].resources.limits.memory;
    expect(limit(await pool())).toBe("896Mi");
    expect(limit(await pool("--set=runtime.kapMemoryMb=64"))).toBe("448Mi");
    expect(limit(await pool("--set=runtime.resources.limits.memory=1Gi"))).toBe("1Gi");
    await expect(pool("--set=runtime.resources.limits.memory=895Mi")).rejects.toThrow(/less than 7 times runtime.kapMemoryMb/);
  });

  test("reach DNS, PostgreSQL, the API's internal port and the public internet only, and are reached by the API only", async () => {
    const { objects } = await render();
    const { spec } = objects.find(({ kind, metadata }) => kind === "NetworkPolicy" && metadata.name === "kapstone-runtime");
    // The library reads `from` as `_from`.
    const component = (peer: Manifest) => peer.podSelector?.matchLabels["app.kubernetes.io/component"];
    expect(spec.ingress.map((rule: Manifest) => [rule._from.map(component), rule.ports.map(({ port }: Manifest) => port)])).toEqual([
      [["api"], [9000, 9001]],
    ]);
    const [dns, database, api, internet, ...more] = spec.egress;
    expect(more).toEqual([]);
    expect(dns.ports.map(({ port }: Manifest) => port)).toEqual([53, 53]);
    expect([database.to.map(component), database.ports]).toEqual([["postgres"], [{ port: 5432 }]]);
    expect([api.to.map(component), api.ports]).toEqual([["api"], [{ port: 8081 }]]);
    for (const range of ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "127.0.0.0/8"])
      expect(internet.to[0].ipBlock.except).toContain(range);
  });
});

describe("the ports that network policies open", () => {
  const opened = async (part: string, ...args: string[]): Promise<number[][]> => {
    const { objects } = await render(...production, ...args);
    const { spec } = objects.find(({ kind, metadata }) => kind === "NetworkPolicy" && metadata.name === `kapstone-${part}`);
    return spec.egress.map(({ ports = [] }: Manifest) => ports.map(({ port }: Manifest) => port));
  };

  test.each([
    ["its own", "endpoint=http://minio.storage.svc:9000", 9000],
    ["that of http", "endpoint=http://minio.storage.svc", 80],
    ["that of https", "endpoint=https://[2001:db8::9000]/", 443],
    ["that of the pods behind a Service, where it is given", "endpoint=http://minio.storage.svc,objects.port=9000", 9000],
  ])("for the object store are %s", async (_, endpoint, port) => {
    for (const part of ["api", "operator"]) expect((await opened(part, `--set=objects.${endpoint}`))[2], part).toEqual([port]);
  });

  test("for PostgreSQL are its own, and for runtimes that of a pooler", async () => {
    const pooler = "--set=database.port=5433,database.kapHost=pooler.db:6432";
    expect((await opened("runtime", pooler)).slice(1, 4)).toEqual([[5433], [6432], [8081]]);
    expect((await opened("runtime", "--set=database.kapHost=pooler.db")).slice(1, 4)).toEqual([[5432], [5432], [8081]]);
    expect((await opened("api", pooler)).flat()).not.toContain(6432);
  });

  test("for DNS are those given", async () => {
    expect((await opened("fire", "--set=networkPolicy.dnsPorts={53,5353}"))[0]).toEqual([53, 53, 5353, 5353]);
  });
});

test("every container has a request and a limit of memory, and takes a limit of CPU: quotas of a namespace admit all pods", async () => {
  const parts = ["api", "operator", "runtime", "mailIngest", "postgres", "s3", "schedules", "hooks"];
  const { objects } = await render("--set=api.syncWeb=true", ...parts.map((part) => `--set=${part}.resources.limits.cpu=3`));
  const containers = podsOf(objects).flatMap(({ spec }) => [...spec.containers, ...(spec.initContainers ?? [])]);
  const fire = containers.flatMap(({ env = [] }) => env.filter(({ name }: Manifest) => name === "KAPSTONE_FIRE_POD"));
  const resources = [...containers, ...fire.map(({ value }) => ({ name: "fire", ...JSON.parse(value) }))];
  expect(resources.map(({ name }) => name).sort()).toEqual(
    ["api", "copy-web", "fire", "mail-ingest", "migrate", "operator", "postgres", "runtime", "s3", "test", "uninstall"].sort(),
  );
  for (const { name, resources: given } of resources)
    expect([given?.requests.cpu, given?.requests.memory, given?.limits.memory, given?.limits.cpu], name).toEqual([
      expect.stringMatching(/^\d+m$/),
      expect.stringMatching(/^\d+Mi$/),
      expect.stringMatching(/^\d+[MG]i$/),
      3,
    ]);
});

test("a name of digits stays a name", async () => {
  const names = ["keys", "database", "objects", "mail", "tls"].map((of) => `--set-string=${of}.existingSecret=123`);
  const parts = ["api", "operator", "runtime", "mailIngest"].map((part) => `--set-string=${part}.priorityClassName=123`);
  const more = "runtime.runtimeClassName=123,ingress.className=123,images.pullSecrets[0]=123,database.existingSecretKey=123";
  const external = await render(...[...production, "--set=tls.certManager.enabled=false", ...names, ...parts, `--set-string=${more}`]);
  const bundled = await render("--set-string=postgres.storage.className=123,s3.storage.className=123,s3.priorityClassName=123");
  const numbers: string[] = [];
  JSON.stringify([external.objects, bundled.objects], (key, value) => {
    if (value === 123) numbers.push(key);
    return value;
  });
  expect(numbers).toEqual([]);
});

test("a variable is given as it was written", async () => {
  const { spec } = podsOf((await render('--set-json=api.env={"A":10000000,"B":0.5,"C":true,"D":"a<\\"b"}')).objects).find(
    ({ of }) => of === "Deployment/kapstone-api",
  ) as Manifest;
  expect(spec.containers[0].env.slice(-4).map(({ value }: Manifest) => value)).toEqual(["10000000", "0.5", "true", 'a<"b']);
});

test.each([
  ["my.kapstone", "my-kapstone"],
  ["7.shop", "k7-shop-kapstone"],
  ["a-release-with-a-name-of-thirty-6-ch.kapstone", "a-release-with-a-name-of-thirty-6-ch"],
  ["a-release-with-a-name-of-thirty-5-c.kapstone", "a-release-with-a-name-of-thirty-5-c"],
])("a release %s has Services, whose names take letters, digits and dashes only", async (release, prefix) => {
  const text = await helm("template", release, chartFolder, "--show-only=templates/api/services.yaml");
  expect([...text.matchAll(/^ {2}name: (.*)$/gm)].map(([, name]) => name)).toEqual([`${prefix}-api`, `${prefix}-api-internal`]);
});

test.each([
  [[], "http", "8080"],
  [["--set=ingress.enabled=true"], "https", "443"],
  [["--set=ingress.enabled=true,scheme=http"], "http", "80"],
  [["--set=gateway.enabled=true,gateway.parentRefs[0].name=public,publicPort=8443"], "https", "8443"],
  [["--set=domain=example.com"], "http", "80"],
])("the outward addresses with %j are %s at the port %s: 8080 is that of a port-forward", async (args, scheme, port) => {
  const { spec } = podsOf((await render(...args)).objects).find(({ of }) => of === "Deployment/kapstone-api") as Manifest;
  const value = (wanted: string) => spec.containers[0].env.find(({ name }: Manifest) => name === wanted)?.value;
  expect([value("KAPSTONE_SCHEME"), value("KAPSTONE_PUBLIC_PORT")]).toEqual([scheme, port]);
});

test("the definition of Kap resources is not brought where it is not wanted", async () => {
  const definitions = async (...args: string[]) =>
    (await render(...args)).objects.filter(({ kind }) => kind === "CustomResourceDefinition").map(({ metadata }) => metadata.name);
  expect(await definitions()).toEqual(["kaps.kapstone.dev"]);
  expect(await definitions("--set=crd.install=false")).toEqual([]);
});

test("the operator reaches DNS, PostgreSQL, the object store and Kubernetes only, and may touch no lease but its own", async () => {
  const { objects } = await render();
  const { spec } = objects.find(({ kind, metadata }) => kind === "NetworkPolicy" && metadata.name === "kapstone-operator");
  expect(spec.egress.map(({ ports }: Manifest) => ports.map(({ port }: Manifest) => port))).toEqual([
    [53, 53],
    [5432],
    [7070],
    [443, 6443],
  ]);
  const leases = objects.flatMap(({ kind, rules }) =>
    kind === "Role" ? rules.filter(({ resources }: Manifest) => resources.includes("leases")) : [],
  );
  expect(leases.map(({ verbs, resourceNames = [] }: Manifest) => [verbs, resourceNames])).toEqual([
    [["create"], []],
    [["get", "update"], ["kapstone-operator"]],
    [["delete"], ["kapstone-operator"]],
  ]);
});

test("an API that is told to end has stopped by itself before it is ended, however long that may take", async () => {
  const drainSeconds = async (...args: string[]): Promise<number> => {
    const { spec } = podsOf((await render(...args)).objects).find(({ of }) => of === "Deployment/kapstone-api") as Manifest;
    const [api] = spec.containers;
    const drain = Number(api.env.find(({ name }: Manifest) => name === "KAPSTONE_DRAIN_SECONDS")?.value);
    // The pause before the signal, two seconds of lingering, calls, runs, and what is closed last.
    expect(api.lifecycle.preStop.sleep.seconds + 2 + 2 * drain).toBeLessThan(spec.terminationGracePeriodSeconds);
    return drain;
  };
  expect(await drainSeconds()).toBe(22);
  expect(await drainSeconds("--set=api.terminationGracePeriodSeconds=600")).toBe(292);
  expect(await drainSeconds("--set=api.terminationGracePeriodSeconds=10")).toBe(0);
});

describe("secrets", () => {
  test("are made of the right sizes, with a claim key whose public half runtimes are given", async () => {
    const { createPublicKey, createPrivateKey } = await import("node:crypto");
    const { objects } = await render();
    const data = (name: string): Record<string, string> => {
      const secret = objects.find(({ kind, metadata }) => kind === "Secret" && metadata.name === name);
      expect(secret.metadata.annotations["helm.sh/resource-policy"]).toBe("keep");
      return Object.fromEntries(Object.entries(secret.data).map(([key, value]) => [key, Buffer.from(String(value), "base64").toString()]));
    };
    const keys = data("kapstone-keys");
    expect(Buffer.from(String(keys.KAPSTONE_KEYS), "base64")).toHaveLength(32);
    const claim = createPrivateKey(String(keys.KAPSTONE_CLAIM_KEY));
    expect(claim.asymmetricKeyType).toBe("ed25519");
    expect(createPublicKey(String(keys.KAPSTONE_CLAIM_PUBLIC_KEY)).equals(createPublicKey(claim))).toBe(true);
    expect(data("kapstone-fire").KAPSTONE_FIRE_TOKEN).not.toBe(keys.KAPSTONE_INGEST_TOKEN);
    expect(new URL(String(data("kapstone-postgres").KAPSTONE_DATABASE_URL)).username).toBe("kapstone");
  });

  test("that are given are not made", async () => {
    const { objects } = await render(...production, "--set=keys.existingSecret=mine");
    expect(objects.filter(({ kind }) => kind === "Secret").map(({ metadata }) => metadata.name)).toEqual(["kapstone-test"]);
    expect(objects.filter(({ kind }) => kind === "StatefulSet")).toEqual([]);
  });
});

test.each([
  ["--set=domian=example.com", /domian/],
  ["--set=database.existingSecret=x", /database\.peers/],
  ["--set=objects.endpoint=https://s3.example.com", /objects\.existingSecret/],
  ["--set=objects.existingSecret=x", /objects\.endpoint/],
  ["--set=gateway.enabled=true", /gateway\.parentRefs/],
  ["--set=tls.existingSecret=x,tls.certManager.enabled=true", /exclude each other/],
  ["--set=database.adminExistingSecret=x", /database\.adminExistingSecret .* give database\.existingSecret/],
  ["--set=database.kapHost=pooler.db:6432", /database\.kapHost .* give database\.existingSecret/],
  ["--set=api.drainDelaySeconds=30,api.terminationGracePeriodSeconds=10", /api\.drainDelaySeconds .* api\.terminationGracePeriodSeconds/],
  ["--set=api.autoscaling.enabled=true,api.autoscaling.maxReplicas=1", /minReplicas \(2\) is above api\.autoscaling\.maxReplicas \(1\)/],
  ["--set=api.autoscaling.enabled=true,api.resources.requests.cpu=null", /api\.resources\.requests\.cpu/],
  ["--set=api.env.KAPSTONE_DRAIN_SECONDS=5", /api\.env names KAPSTONE_DRAIN_SECONDS/],
  ["--set=operator.env.KAPSTONE_S3_REGION=x", /operator\.env names KAPSTONE_S3_REGION/],
  ["--set=mailIngest.env.KAPSTONE_DOMAIN=x", /mailIngest\.env names KAPSTONE_DOMAIN/],
  ["--set=runtime.poolSize=-1", /poolSize/],
  ["--set=fullnameOverride=Kapstone", /fullnameOverride/],
])("%s is refused with the value's name", async (value, message) => {
  await expect(render(value)).rejects.toThrow(message);
});

test("a private CA of PostgreSQL is mounted where it is documented for those who connect by its URL, and for nobody else", async () => {
  const { objects } = await render(...production, "--set=database.caSecret=my-ca");
  const withCa = podsOf(objects).flatMap(({ spec }) =>
    [...spec.containers, ...(spec.initContainers ?? [])]
      .filter(({ volumeMounts = [] }) =>
        volumeMounts.some((mount: Manifest) => mount.mountPath === "/etc/kapstone/database-ca" && mount.readOnly),
      )
      .map(({ name }) => [name, spec.volumes.find((volume: Manifest) => volume.name === "database-ca")?.secret]),
  );
  const secret = { secretName: "my-ca" };
  expect(withCa.sort()).toEqual([
    ["api", secret],
    ["migrate", secret],
    ["operator", secret],
  ]);
});

test("the schema of the values needs nothing from elsewhere", () => {
  const references = [...readFileSync(join(chartFolder, "values.schema.json"), "utf8").matchAll(/"\$ref": "([^"]*)"/g)].map(([, to]) => to);
  expect(references.length).toBeGreaterThan(0);
  for (const to of references) expect(to).toMatch(/^#\/definitions\//);
});

test("the hosts of the four kinds are routed, by an Ingress and by a Gateway", async () => {
  const hosts = ["example.com", "*.example.com", "*.kaps.example.com"];
  const { objects } = await render(...everything);
  const find = (wanted: string): Manifest => objects.find(({ kind }) => kind === wanted);
  expect(find("Ingress").spec.rules.map(({ host }: Manifest) => host)).toEqual(hosts);
  expect(find("Ingress").spec.tls).toEqual([{ secretName: "kapstone-tls", hosts }]);
  expect(find("HTTPRoute").spec.hostnames).toEqual(hosts);
  expect(find("Certificate").spec.dnsNames).toEqual(hosts);
});
