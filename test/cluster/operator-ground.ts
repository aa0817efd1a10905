import { randomBytes, randomUUID } from "node:crypto";
import pg from "pg";
import { kapRoleContext, platformDatabase, provisionKapDatabase } from "../../platform/kap-database.ts";
import { type Kap, kapApiVersion, kapFieldManagers, kapLabels, kapResource } from "../../platform/kap-resource.ts";
import { createKeyring } from "../../platform/keyring.ts";
import type { ApiResource } from "../../platform/kubernetes/client.ts";
import type { Pod } from "../../platform/kubernetes/objects.ts";
import { createTestDatabase, type TestDatabase } from "../harness/database.ts";
import { databaseUrl } from "../harness/database-url.ts";
import { until } from "../harness/wait.ts";
import { type GroundProcess, startGroundProcess } from "./ground-process.ts";
import { createNamespace, type TestNamespace } from "./namespace.ts";

const key = randomBytes(32);
export const release = "t";
export const podResource: ApiResource<Pod> = { apiVersion: "v1", kind: "Pod", plural: "pods" };

/** A kap that has its row, schema, role and resource, but no API that looks after it. */
export interface GroundKap {
  id: string;
  slug: string;
  schema: string;
  role: string;
  /** The resource as it is now. */
  read(): Promise<Kap>;
}

/** An operator. */
export interface OperatorProcess extends GroundProcess {
  /** Fetches a page of its monitoring listener. */
  monitor(path: string): Promise<{ status: number; text: string }>;
  leads(): Promise<boolean>;
  /** The sum of a metric over its labels; its name without `kapstone_operator_`, or a whole one with `process_`. */
  metric(name: string): Promise<number>;
}

export interface Ground {
  namespace: TestNamespace;
  database: TestDatabase;
  makeKap(spec?: Partial<Kap["spec"]>): Promise<GroundKap>;
  /** A row of `runtimes` as a gateway writes it, with its notification. */
  claim(kapId: string, control: string): Promise<string>;
  /** Makes a runtime pod that no kubelet runs, with an address; its status is the test's to say. */
  makePod(name: string, ip: string): Promise<void>;
  /** Makes the database refuse and drop everybody, or not any more. */
  refuseDatabase(isRefused: boolean): Promise<void>;
  startOperator(env?: Record<string, string>): Promise<OperatorProcess>;
  close(): Promise<void>;
}

/** A namespace, a database, and no API: what an operator alone makes of them. */
export async function openGround(): Promise<Ground> {
  const [namespace, database] = await Promise.all([createNamespace(), createTestDatabase()]);
  const db = database.postgres.knex;
  const orgId = randomUUID();
  await db("orgs").insert({ id: orgId, slug: `org-${orgId.slice(0, 8)}`, name: "Org" });
  const keyring = createKeyring([key]);
  const running: OperatorProcess[] = [];
  return {
    namespace,
    database,
    async makeKap(spec = {}) {
      const id = randomUUID();
      const plain = id.replaceAll("-", "");
      const slug = spec.slug ?? `kap-${plain.slice(0, 10)}`;
      const names = { schema: `kap_${plain}`, role: `kap_${plain}` };
      const password = randomBytes(16).toString("hex");
      await db.transaction(async (trx) => {
        await trx("kaps").insert({
          id,
          org_id: orgId,
          slug,
          name: slug,
          schema_name: names.schema,
          role_name: names.role,
          role_password: keyring.seal(password, kapRoleContext(id)),
          bucket: `kap-${plain}`,
          created_by: "{}",
        });
        const { schema: schemaName, role: roleName } = names;
        await provisionKapDatabase(trx, {
          schemaName,
          roleName,
          password,
          databaseName: platformDatabase(database.url),
          connectionLimit: 5,
        });
      });
      await namespace.kubernetes.apply(
        kapResource,
        {
          apiVersion: kapApiVersion,
          kind: "Kap",
          metadata: {
            name: slug,
            labels: { [kapLabels.instance]: release, [kapLabels.kapId]: id, [kapLabels.orgId]: orgId, [kapLabels.managedBy]: "kapstone" },
          },
          spec: {
            kapId: id,
            orgId,
            name: slug,
            slug,
            address: `http://${slug}.kaps.localhost`,
            state: "active",
            revision: 1,
            versionId: null,
            version: 0,
            audience: "members",
            database: names,
            bucket: `kap-${plain}`,
            schedules: [],
            hasIntervals: false,
            ...spec,
          },
        },
        { fieldManager: kapFieldManagers.api },
      );
      return { id, slug, ...names, read: () => namespace.kubernetes.get(kapResource, slug) };
    },
    async claim(kapId, control) {
      const id = randomUUID();
      await db.raw(
        `insert into runtimes (id, kap_id, state, data_address, control_address, token_digest, claim_until)
         values (?, ?, 'ready', ?, ?, sha256(?::bytea), now() + interval '15 seconds')`,
        [id, kapId, control.replace("9001", "9000"), control, Buffer.from(id)],
      );
      await db.raw("select pg_notify('kapstone_runtimes', '')");
      return id;
    },
    async makePod(name, ip) {
      await namespace.apply({
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name, labels: runtimeLabels },
        spec: gatedPodSpec,
      });
      await setPodStatus(namespace, name, { ip, restarts: 0 });
    },
    async refuseDatabase(isRefused) {
      const name = platformDatabase(database.url);
      const client = new pg.Client({ connectionString: databaseUrl(database.superuserUrl, "postgres") });
      await client.connect();
      try {
        await client.query(`alter database ${name} allow_connections ${!isRefused}`);
        if (!isRefused) return;
        const drop = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
        await until(async () => (await client.query(drop, [name])).rowCount === 0, { what: "the end of every session" });
      } finally {
        await client.end();
      }
    },
    async startOperator(env = {}) {
      const { process, up } = await startGroundProcess("operator/main.ts", "the operator is up", {
        KAPSTONE_NAMESPACE: namespace.name,
        KAPSTONE_RELEASE: release,
        KAPSTONE_DATABASE_URL: database.url,
        KAPSTONE_KEYS: key.toString("base64"),
        KAPSTONE_OBJECTS: "files",
        KAPSTONE_FIRE_IMAGE: "example.org/kapstone/operator:test",
        KAPSTONE_INTERNAL_URL: "http://api.invalid:8081",
        KAPSTONE_MONITORING_PORT: "0",
        KAPSTONE_LEASE_SECONDS: "4",
        ...env,
      });
      const { monitoring } = up as { monitoring: { port: number } };
      const operator: OperatorProcess = {
        ...process,
        async monitor(path) {
          const answer = await fetch(`http://127.0.0.1:${monitoring.port}${path}`, { signal: AbortSignal.timeout(10_000) });
          return { status: answer.status, text: await answer.text() };
        },
        leads: async () => (await operator.metric("leader")) === 1,
        async metric(name) {
          const whole = name.startsWith("process_") ? name : `kapstone_operator_${name}`;
          const { text } = await operator.monitor("/metrics");
          return [...text.matchAll(new RegExp(`^${whole}(?:\\{[^}]*\\})? (\\S+)$`, "gm"))].reduce(
            (sum, [, value]) => sum + Number(value),
            0,
          );
        },
      };
      running.push(operator);
      return operator;
    },
    async close() {
      await Promise.all(running.map((operator) => operator.stop()));
      await namespace.close();
      await database.close();
    },
  };
}

export const runtimeLabels = { [kapLabels.instance]: release, [kapLabels.component]: "runtime", [kapLabels.runtime]: "warm" };

/** A pod that is never scheduled, so that the test alone says how it is. */
export const gatedPodSpec = {
  schedulingGates: [{ name: "kapstone.dev/test" }],
  automountServiceAccountToken: false,
  securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
  containers: [
    {
      name: "runtime",
      image: "example.org/nothing:1",
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
    },
  ],
};

/** Says what a kubelet would say of a pod. */
export async function setPodStatus(namespace: TestNamespace, name: string, said: { ip: string; restarts: number }): Promise<void> {
  const status = {
    podIP: said.ip,
    podIPs: [{ ip: said.ip }],
    phase: "Running",
    conditions: [{ type: "Ready", status: "True" }],
    containerStatuses: [
      { name: "runtime", image: "x", imageID: "x", ready: true, restartCount: said.restarts, state: { running: {} }, lastState: {} },
    ],
  };
  await namespace.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", JSON.stringify({ status }));
}
