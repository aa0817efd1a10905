import { z } from "zod";
import type { Logger } from "#platform/log.ts";
import type { Postgres } from "#platform/postgres.ts";
import { outcomeOf } from "#platform/run-outcome.ts";
import { storableText } from "./storable.ts";

const amount = z.number().min(0).catch(0);
const time = z.iso.datetime({ offset: true });

/** The end of a run as a runtime reports it. */
const reportedRun = z.object({
  id: z.uuid(),
  outcome: z.string().transform(outcomeOf),
  detail: z
    .string()
    .nullish()
    .transform((text) => (text ? storableText(text) : null)),
  http_status: z.int().min(100).max(999).nullish().catch(null),
  started_at: time,
  finished_at: time,
  duration_ms: amount,
  cpu_ms: amount,
  phases: z.record(z.string().max(40), z.number()).nullish().catch(null),
  egress_bytes: amount.transform(Math.round),
  db_ms: amount,
  memory_bytes: amount.optional(),
});

/** A line of a run's log; `n` counts the lines of an attempt. */
const reportedLine = z.object({
  run_id: z.uuid(),
  n: z.int().min(0).max(1_000_000),
  at: time,
  level: z.string().max(20).catch("info"),
  text: z.string().transform((text) => storableText(text).slice(0, 8_192)),
});

const report = z.object({
  runs: z.array(z.unknown()).default([]),
  lines: z.array(z.unknown()).default([]),
  idle_since: time.nullish().catch(null),
});

export type Report = { runs: z.output<typeof reportedRun>[]; lines: z.output<typeof reportedLine>[]; idle_since: string | null };

/**
 * Reads a report. What is not a run or a line is left out and counted in the log: a runtime repeats a report until it is taken, so one bad item must
 * not keep the others.
 */
export function readReport(body: unknown, log: Logger): Report {
  const { runs, lines, idle_since } = report.parse(body);
  const read = <T>(items: unknown[], schema: z.ZodType<T>): T[] =>
    items.flatMap((item) => {
      const parsed = schema.safeParse(item);
      return parsed.success ? [parsed.data] : [];
    });
  const taken = { runs: read(runs, reportedRun), lines: read(lines, reportedLine), idle_since: idle_since ?? null };
  const dropped = runs.length + lines.length - taken.runs.length - taken.lines.length;
  if (dropped > 0) log.warn({ dropped }, "a runtime's report had items that are neither a run nor a log line; they were left out");
  return taken;
}

/**
 * One statement takes a whole report, and taking it again changes nothing:
 * - `before` locks the runs and says of each whether the report ends it (it is open; a failed attempt of a mail's run is ended by its job, which
 *   may try again) and whether its measurements are new (each attempt is added up once, told apart by its start);
 * - lines get positions from the kap's counter, whose row lock makes them visible in order; lines of a run of another kap are left out.
 */
const statement = `
with before as materialized (
  select r.id, r.trigger_id, r.started_at as began_at, r.attempts, x.outcome, x.detail, x.http_status, x.started_at, x.finished_at, x.duration_ms, x.cpu_ms,
         x.phases, x.egress_bytes, x.db_ms,
         r.status in ('queued', 'running') and not (r.trigger_kind = 'inbox' and x.outcome <> 'ok') as ends,
         r.measured_at is null or r.measured_at < x.started_at as measures
  from jsonb_to_recordset($3::jsonb) as x(id uuid, outcome text, detail text, http_status int, started_at timestamptz, finished_at timestamptz,
                                          duration_ms float8, cpu_ms float8, phases jsonb, egress_bytes bigint, db_ms float8)
  join runs r on r.id = x.id
  where r.kap_id = $2
  for update of r
), ended as (
  update runs r set
    status = case when not b.ends then r.status when b.outcome = 'ok' then 'succeeded' else 'failed' end,
    outcome = case when b.ends then b.outcome else r.outcome end,
    detail = case when b.ends then b.detail else coalesce(r.detail, b.detail) end,
    http_status = case when b.ends then b.http_status else coalesce(r.http_status, b.http_status) end,
    finished_at = case when b.ends then b.finished_at else r.finished_at end,
    duration_ms = case when b.ends or r.duration_ms is null then b.duration_ms else r.duration_ms end,
    cpu_ms = case when b.measures then coalesce(r.cpu_ms, 0) + b.cpu_ms else r.cpu_ms end,
    phases = case when b.measures then b.phases else r.phases end,
    usage = case when b.measures then jsonb_build_object(
      'egress_bytes', coalesce((r.usage->>'egress_bytes')::bigint, 0) + b.egress_bytes, 'db_ms', coalesce((r.usage->>'db_ms')::float8, 0) + b.db_ms) else r.usage end,
    measured_at = case when b.measures then b.started_at else r.measured_at end,
    runtime_id = coalesce(r.runtime_id, $1)
  from before b where b.id = r.id and (b.ends or b.measures)
), triggers as (
  update kap_triggers t set last_run_at = b.began_at, last_outcome = b.outcome
  from (select distinct on (trigger_id) trigger_id, began_at, outcome from before where ends order by trigger_id, began_at desc) b
  where t.id = b.trigger_id and (t.last_run_at is null or t.last_run_at <= b.began_at)
), used as (
  insert into kap_usage (kap_id, day, runs, failed_runs, cpu_ms, duration_ms, db_ms, egress_bytes)
  select $2, (began_at at time zone 'utc')::date, count(*) filter (where ends), count(*) filter (where ends and outcome <> 'ok'),
         coalesce(sum(cpu_ms) filter (where measures), 0), coalesce(sum(duration_ms) filter (where measures), 0),
         coalesce(sum(db_ms) filter (where measures), 0), coalesce(sum(egress_bytes) filter (where measures), 0)
  from before group by 2 order by 2
  on conflict (kap_id, day) do update set runs = kap_usage.runs + excluded.runs, failed_runs = kap_usage.failed_runs + excluded.failed_runs,
    cpu_ms = kap_usage.cpu_ms + excluded.cpu_ms, duration_ms = kap_usage.duration_ms + excluded.duration_ms,
    db_ms = kap_usage.db_ms + excluded.db_ms, egress_bytes = kap_usage.egress_bytes + excluded.egress_bytes
), lines as materialized (
  select x.run_id, x.n, x.at, x.level, x.text, row_number() over (order by x.at, x.run_id, x.n) as place, count(*) over () as total
  from jsonb_to_recordset($4::jsonb) as x(run_id uuid, n int, at timestamptz, level text, text text)
  join runs r on r.id = x.run_id and r.kap_id = $2
), head as (
  insert into kap_log_heads (kap_id, last_position) select $2, count(*) from lines having count(*) > 0
  on conflict (kap_id) do update set last_position = kap_log_heads.last_position + excluded.last_position
  returning last_position
), written as (
  insert into kap_log_lines (run_id, n, kap_id, position, at, level, text)
  select run_id, n, $2, head.last_position - total + place, at, level, text from lines, head
  on conflict (run_id, n, at) do nothing
)
update runtimes set last_report_at = now(), last_used_at = greatest(last_used_at, coalesce($5, now())) where id = $1`;

/** Takes the report of a runtime that serves `kapId`; repeating it changes nothing. What is of another kap's runs is left out. */
export async function takeReport(hot: Postgres["hot"], runtime: { id: string; kap_id: string }, taken: Report): Promise<void> {
  await hot.query({
    name: "runs-report",
    text: statement,
    values: [runtime.id, runtime.kap_id, JSON.stringify(taken.runs), JSON.stringify(taken.lines), taken.idle_since],
  });
}
