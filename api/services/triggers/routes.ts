import { members } from "../../http/access.ts";
import { type Route, route } from "../../http/route.ts";
import { findKap, refuseDeleted, refuseDisabled } from "../kaps/kap.ts";
import { presentRun } from "../runs/run.ts";
import { changeRequestTrigger, createTrigger, databaseNow, deleteTrigger, setEnabled } from "./changes.ts";
import { dryRun } from "./dry-run.ts";
import { runNow } from "./run-now.ts";
import * as schema from "./schema.ts";
import { findTrigger, listTriggers, mailBytes, presentTrigger, triggerLimits } from "./trigger.ts";

const reading = members("kaps.read", { otherKinds: 401 });
const writing = members("kaps.write", { otherKinds: 401 });
/** The largest mail in base64, with room for what is around it. */
const dryRunBytes = Math.ceil((mailBytes * 4) / 3) + 64 * 1024;
const base = "/v1/orgs/{org_id}/kaps/{id}/triggers";

type Load = {
  deps: Parameters<Route["handler"]>[0]["deps"];
  caller: Parameters<typeof findKap>[1];
  params: { id: string; trigger_id: string };
};
const loadTrigger = async ({ deps, caller, params }: Load) => {
  const kap = await findKap(deps.db, caller, params.id);
  return { kap, trigger: await findTrigger(deps.db, kap, params.trigger_id) };
};

/** Pause and resume differ in a word. */
function switchRoute(verb: "pause" | "resume", summary: string): Route {
  return route({
    method: "POST",
    path: `${base}/{trigger_id}/${verb}`,
    summary,
    description:
      "Attributed in the trigger and the kap's history. Doing it again changes nothing. The request trigger is changed with PUT (409).",
    access: writing,
    params: schema.triggerParams,
    responses: { 200: { description: "The trigger", schema: schema.triggerAnswer } },
    load: loadTrigger,
    async handler({ deps, caller, client, resource: { kap, trigger } }) {
      const changed = await setEnabled(deps, { caller, client, kap }, trigger.id, verb === "resume");
      return { status: 200, body: { trigger: presentTrigger(changed, await databaseNow(deps.db)) } };
    },
  });
}

export const routes: Route[] = [
  route({
    method: "GET",
    path: base,
    summary: "The triggers of a kap, its mail address, and what this deployment allows",
    access: reading,
    params: schema.kapParams,
    responses: { 200: { description: "Triggers, the request trigger first", schema: schema.triggersAnswer } },
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    async handler({ deps, resource }) {
      const [triggers, now] = await Promise.all([listTriggers(deps.db, resource.id), databaseNow(deps.db)]);
      return {
        status: 200,
        body: {
          triggers: triggers.map((trigger) => presentTrigger(trigger, now)),
          mail_address: `${resource.slug}@${deps.addresses.mailDomain}`,
          limits: triggerLimits(deps.config),
        },
      };
    },
  }),
  route({
    method: "POST",
    path: base,
    summary: "Attach a schedule or an inbox",
    description:
      "Cron has five numeric UTC fields with lists, ranges and steps; 7 is Sunday; with both day fields restricted (neither is `*`) either matches. `INVALID_CRON` (422) is an expression that is none or whose dates never come, `CADENCE_TOO_SHORT` (422) one whose smallest gap over the whole calendar is too short. At most 20 schedules (409 `TRIGGER_LIMIT`) and one inbox (409).",
    access: writing,
    params: schema.kapParams,
    body: schema.createTrigger,
    responses: { 201: { description: "The trigger; of a schedule with its next five times", schema: schema.triggerAnswer } },
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    async handler({ deps, caller, client, resource, body }) {
      const trigger = await createTrigger(deps, { caller, client, kap: resource }, body);
      return { status: 201, body: { trigger: presentTrigger(trigger, await databaseNow(deps.db)) } };
    },
  }),
  route({
    method: "PUT",
    path: `${base}/{trigger_id}`,
    summary: "Change the request trigger: its file, or whether it is paused",
    access: writing,
    params: schema.triggerParams,
    body: schema.changeRequestTrigger,
    responses: { 200: { description: "The trigger", schema: schema.triggerAnswer } },
    load: loadTrigger,
    async handler({ deps, caller, client, resource: { kap, trigger }, body }) {
      const changed = await changeRequestTrigger(deps, { caller, client, kap }, trigger.id, body);
      return { status: 200, body: { trigger: presentTrigger(changed, await databaseNow(deps.db)) } };
    },
  }),
  route({
    method: "DELETE",
    path: `${base}/{trigger_id}`,
    summary: "Detach a schedule or the inbox; its runs stay",
    access: writing,
    params: schema.triggerParams,
    responses: { 204: { description: "Detached" } },
    load: loadTrigger,
    async handler({ deps, caller, client, resource: { kap, trigger } }) {
      await deleteTrigger(deps, { caller, client, kap }, trigger.id);
      return { status: 204 };
    },
  }),
  switchRoute("pause", "Pause a schedule or the inbox"),
  switchRoute("resume", "Resume a schedule or the inbox"),
  route({
    method: "POST",
    path: `${base}/{trigger_id}/run-now`,
    summary: "Run a schedule now, paused or not",
    description:
      "Waits for the run's end up to 30 seconds, else answers the run as it is. While another run of the trigger is going on the run is `missed`, with the reason. A disabled kap is 409 `KAP_DISABLED`.",
    access: writing,
    params: schema.triggerParams,
    responses: { 200: { description: "The run", schema: schema.runNowAnswer } },
    load: loadTrigger,
    async handler({ deps, resource: { kap, trigger }, requestId, signal }) {
      refuseDeleted(kap);
      refuseDisabled(kap, 409);
      return { status: 200, body: { run: presentRun(await runNow(deps, kap, trigger, requestId, signal)) } };
    },
  }),
  route({
    method: "POST",
    path: `${base}/{trigger_id}/dry-run`,
    summary: "Run a trigger on a mail, a request or a tick without leaving anything behind, paused or not",
    description:
      "The program runs as it would: its statements stand in a transaction that is rolled back, its files are not written, its fetches are refused. Answers what it did, its log and how it ended, within 30 seconds; no run is recorded. A disabled kap is 409 `KAP_DISABLED`.",
    access: writing,
    params: schema.triggerParams,
    body: schema.dryRunBody,
    bodyOptional: true,
    bodyLimit: dryRunBytes,
    responses: { 200: { description: "What the run did and how it ended", schema: schema.dryRunAnswer } },
    load: loadTrigger,
    async handler({ deps, caller, resource: { kap, trigger }, body, signal }) {
      refuseDeleted(kap);
      refuseDisabled(kap, 409);
      return { status: 200, body: await dryRun(deps, { caller, kap, trigger, body, signal }) };
    },
  }),
];
