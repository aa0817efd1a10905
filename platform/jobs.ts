import { EventEmitter } from "node:events";
import { type Runner, run, runMigrations, type TaskList, Logger as WorkerLogger } from "graphile-worker";
import pg from "pg";
import { impatientSocket, type Pulse, steadyPulse, watchConnection } from "./lasting-connection.ts";
import type { Logger } from "./log.ts";
import type { Db, Postgres } from "./postgres.ts";

const jobsSchema = "kapstone_jobs";
const defaultHeartbeatMs = 5_000;
const deadAfterSeconds = 30;
const connectMs = 10_000;

/** Options of a job: `key` makes it one of a kind (a second one replaces the first while it waits), `runAt` delays it. */
export interface JobOptions {
  key?: string;
  runAt?: Date;
  maxAttempts?: number;
  /** Jobs of one queue run one after another. */
  queue?: string;
}

/** What a job does. It may run more than once (a process can die after the work and before the mark), so it must be idempotent. */
export type JobHandler = (payload: unknown, job: { id: string; attempt: number; signal: AbortSignal }) => Promise<void>;
export type JobHandlers = Record<string, JobHandler>;

/** Adds a durable job in the caller's transaction: it exists exactly when the transaction commits, and is picked up within milliseconds. */
export async function addJob(db: Db, name: string, payload: object, options: JobOptions = {}): Promise<void> {
  await db.raw(
    `select 1 from ${jobsSchema}.add_job(identifier := ?, payload := ?::json, queue_name := ?, run_at := ?, max_attempts := ?, job_key := ?)`,
    [
      name,
      JSON.stringify(payload),
      options.queue ?? null,
      options.runAt ?? null,
      options.maxAttempts ?? null,
      options.key ?? null,
    ] as string[],
  );
}

/**
 * A job that comes round: the next round goes into the queue first, and the queue tries that again. What a round itself fails at is logged and not tried
 * again: the next one follows.
 */
export function recurringJob(
  { db, log }: { db: Db; log: Logger },
  name: string,
  seconds: number,
  round: (signal: AbortSignal) => Promise<void>,
): JobHandler {
  return async (_payload, { signal }) => {
    await addJob(db, name, {}, { key: name, runAt: new Date(Date.now() + seconds * 1_000) });
    await round(signal).catch((error: unknown) =>
      log.warn({ err: error, job: name }, "a round of a recurring job failed; the next one follows"),
    );
  };
}

/** Adds a job for each payload, in one statement: the workers are told once. */
export async function addJobs(db: Db, name: string, payloads: readonly object[]): Promise<void> {
  if (payloads.length === 0) return;
  await db.raw(
    `select 1 from ${jobsSchema}.add_jobs(array(
       select (?::text, payload, null, null, null, null, null, null)::${jobsSchema}.job_spec from json_array_elements(?::json) as payload))`,
    [name, JSON.stringify(payloads)],
  );
}

/**
 * One job as an expression of a larger statement: `name` is one of ours, `payload` SQL that makes a JSON object, `runAt` SQL of a time. It is evaluated for
 * each row it stands in.
 */
export function addJobSql(name: string, payload: string, runAt = "now()"): string {
  return `(${jobsSchema}.add_job(identifier := '${name}', payload := (${payload})::json, run_at := ${runAt})).id`;
}

/** Creates or updates the queue's own tables. */
export async function migrateJobs(postgres: Postgres): Promise<void> {
  const pool = new pg.Pool({ connectionString: postgres.url, max: 2 });
  tolerateLostConnections(pool);
  try {
    await runMigrations({ pgPool: pool, schema: jobsSchema });
    await pool.query(`create table if not exists ${jobsSchema}.live_workers (worker_id text primary key, seen_at timestamptz not null)`);
  } finally {
    await pool.end();
  }
}

/** Workers of one process. */
export interface JobWorkers {
  close(): Promise<void>;
}

/**
 * Gives every job that is being worked on to whoever asks next: for the start of a platform that is one process tree, whose last start left nobody who
 * could still be at work.
 */
export async function releaseJobs(db: Db): Promise<void> {
  await db.raw(
    `select ${jobsSchema}.force_unlock_workers(array(select distinct locked_by from ${jobsSchema}._private_jobs where locked_by is not null))`,
  );
}

/**
 * Starts this process's job workers. They say every 5 s (`heartbeatMs`) that they live; the jobs of a process that has been silent for 30 s (it was
 * killed), and those that have not come within 30 s to the process that took them, are given out again, not after the queue's own four hours.
 */
export async function startJobWorkers(
  postgres: Pick<Postgres, "url">,
  handlers: JobHandlers,
  options: { concurrency: number; log: Logger; heartbeatMs?: number; pulse?: Pulse },
): Promise<JobWorkers> {
  const { pulse = steadyPulse } = options;
  // The queue's own statements are short. The connection on which it listens is asked often enough not to be silent for so long while it lives.
  const silenceMs = pulse.askMs + 2 * pulse.answerMs;
  const pool = new pg.Pool({
    connectionString: postgres.url,
    max: options.concurrency + 2,
    application_name: "kapstone-jobs",
    connectionTimeoutMillis: connectMs,
    keepAlive: true,
    stream: () => impatientSocket(silenceMs),
  });
  tolerateLostConnections(pool);
  askAgainWhileAway(pool);
  const holders = new Set<string>();
  const inWork = new Set<string>();
  const taskList: TaskList = Object.fromEntries(
    Object.entries(handlers).map(([name, handler]) => [
      name,
      async (payload, helpers) => {
        const abort = helpers.abortSignal ?? new AbortController().signal;
        inWork.add(helpers.job.id);
        try {
          await handler(payload, { id: helpers.job.id, attempt: helpers.job.attempts, signal: abort });
        } finally {
          inWork.delete(helpers.job.id);
        }
      },
    ]),
  );
  const heartbeat = async (): Promise<void> => {
    await pool.query(
      `insert into ${jobsSchema}.live_workers (worker_id, seen_at) select unnest($1::text[]), now() on conflict (worker_id) do update set seen_at = now()`,
      [[...holders]],
    );
    await pool.query(`delete from ${jobsSchema}.live_workers where seen_at < now() - interval '1 hour'`);
    await pool.query(
      `select ${jobsSchema}.force_unlock_workers(array(
         select distinct locked_by from ${jobsSchema}._private_jobs j
         where locked_at < now() - make_interval(secs => $1) and not exists (
           select 1 from ${jobsSchema}.live_workers w where w.worker_id = j.locked_by and w.seen_at > now() - make_interval(secs => $1))))`,
      [deadAfterSeconds],
    );
    // A job whose delivery was lost on its way here (the connection broke) is nobody's.
    await pool.query(
      `with lost as (
         update ${jobsSchema}._private_jobs set locked_at = null, locked_by = null
         where locked_by = any($1) and locked_at < now() - make_interval(secs => $2) and id <> all($3::bigint[]) returning job_queue_id)
       update ${jobsSchema}._private_job_queues q set locked_at = null, locked_by = null from lost where q.id = lost.job_queue_id and q.locked_by = any($1)`,
      [[...holders], deadAfterSeconds, [...inWork]],
    );
  };
  let runner: Runner;
  try {
    runner = await run({
      pgPool: pool,
      schema: jobsSchema,
      concurrency: options.concurrency,
      noHandleSignals: true,
      pollInterval: 1_000,
      taskList,
      parsedCronItems: [],
      logger: new WorkerLogger(() => (level, message) => {
        if (level === "error" || level === "warning") options.log.warn({ queue: true }, message);
      }),
      events: hearQueue({ onCreate: (id) => holders.add(id), onListen: (client) => watchConnection(client, pulse) }),
    });
  } catch (error) {
    await pool.end();
    throw error;
  }
  // One at a time: one that waited long for a connection would judge by what was in work when it was asked for.
  let beating: Promise<void> | undefined;
  const beat = (): void => {
    beating ??= heartbeat()
      .catch((error: unknown) => options.log.warn({ err: error }, "the job workers' heartbeat failed"))
      .finally(() => {
        beating = undefined;
      });
  };
  beat();
  const timer = setInterval(beat, options.heartbeatMs ?? defaultHeartbeatMs);
  return {
    async close() {
      clearInterval(timer);
      await runner.stop();
      await beating; // it would say once more that this process lives
      await pool.query(`delete from ${jobsSchema}.live_workers where worker_id = any($1)`, [[...holders]]).catch(() => undefined);
      await pool.end();
    },
  };
}

/** Jobs are held in the name of the pool of workers, not of the worker that carries them out. It has one connection that listens, and another when that breaks. */
function hearQueue(hear: { onCreate(id: string): void; onListen(client: pg.PoolClient): void }): EventEmitter {
  const events = new EventEmitter();
  events.on("pool:create", ({ workerPool }: { workerPool: { id: string } }) => hear.onCreate(workerPool.id));
  events.on("pool:listen:success", ({ client }: { client: pg.PoolClient }) => hear.onListen(client));
  return events;
}

/** A connection that breaks, idle or in use, must not end the process: whoever uses it hears of it, and the pool replaces it. */
function tolerateLostConnections(pool: pg.Pool): void {
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
}

/** PostgreSQL's "cannot connect now": one of the few errors after which the queue marks a job's end again. */
const cannotConnectNow = "57P03";

/**
 * The queue marks the end of a job without anybody waiting for it: an error it does not try again would end the process. So every way in which the
 * database can be away (no connection, a cut one, a server that stops, starts or is full) is told to it as the one that it does try again.
 */
function askAgainWhileAway(pool: pg.Pool): void {
  translateFailures(pool, "connect");
  pool.on("connect", (client) => translateFailures(client, "query"));
}

function translateFailures<Name extends string>(target: Record<Name, (...args: never[]) => unknown>, name: Name): void {
  const original = target[name];
  target[name] = (...args: never[]) => {
    const result = Reflect.apply(original, target, args);
    return result instanceof Promise ? result.catch(failAsAway) : result;
  };
}

function failAsAway(error: unknown): never {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const isAnswer = /^[0-9A-Z]{5}$/.test(code) && !/^(08|53|57|58)/.test(code); // the database's own, and about the statement
  if (isAnswer) throw error;
  throw Object.assign(new Error("the database is away", { cause: error }), { code: cannotConnectNow });
}
