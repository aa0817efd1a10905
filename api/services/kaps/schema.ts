import { z } from "zod";
import { triggerKinds } from "#platform/trigger-kind.ts";
import { kapNameText } from "../../http/fields.ts";
import { fileSetProblems } from "./file-set.ts";

const time = z.iso.datetime();
const uuid = z.uuid();

/** Who did it. */
const actor = z.object({ kind: z.enum(["member", "key", "agent", "token", "runtime", "system"]), id: z.string(), name: z.string() });

const audienceName = z.enum(["members", "invited", "public"]);

const kap = z.object({
  id: uuid,
  slug: z.string(),
  name: z.string(),
  org_id: uuid,
  address: z.url(),
  mail_address: z.string(),
  audience: audienceName,
  state: z.enum(["active", "disabled", "deleted"]),
  disabled: z.object({ by: actor, at: time, reason: z.string() }).nullable(),
  current_version_id: uuid,
  created_at: time,
  created_by: actor,
  updated_at: time,
  deleted_at: time.nullable(),
  recover_until: time.nullable(),
});

const versionFile = z.object({ path: z.string(), size: z.number().int(), sha256: z.string() });
const fileWithContent = versionFile.extend({ content: z.string() });

const version = z.object({
  id: uuid,
  kap_id: uuid,
  sequence: z.number().int(),
  main_file: z.string(),
  files: z.array(versionFile),
  bundle_sha256: z.string(),
  restored_from: uuid.nullable(),
  created_at: time,
  created_by: actor,
  client: z.string().nullable(),
});

const trigger = z.object({
  id: uuid,
  kap_id: uuid,
  kind: z.enum(triggerKinds),
  file_path: z.string(),
  enabled: z.boolean(),
  cron: z.string().nullable().optional(),
  interval_seconds: z.number().int().nullable().optional(),
  next_runs: z.array(time).optional(),
  auto_replies: z.boolean().optional(),
  next_run_at: time.nullable(),
  last_run_at: time.nullable(),
  last_outcome: z.string().nullable(),
  created_at: time,
  created_by: actor,
  paused_by: actor.nullable(),
  paused_at: time.nullable(),
});

const diagnostic = z.object({
  file: z.string(),
  line: z.number().int(),
  column: z.number().int(),
  message: z.string(),
  severity: z.enum(["error", "warning"]),
});

const historyEvent = z.object({
  id: uuid,
  kind: z.string(),
  at: time,
  actor,
  client: z.string().nullable(),
  detail: z.record(z.string(), z.unknown()),
});

const nextCursor = z.string().nullable();
const token = z.object({ id: uuid, name: z.string(), created_at: time, created_by: actor, revoked_at: time.nullable() });
const storeScopes = z.array(z.enum(["db.read", "db.write", "store.read", "store.write"]));
const storeToken = token.extend({ scopes: storeScopes, expires_at: time });
const policy = z.object({ audience: audienceName, invited: z.array(z.string()), revision: z.number().int() });
const diffText = z.string().nullable();

/** What the routes answer. */
export const answers = {
  created: z.object({ kap, version, address: z.url(), bypass_token: z.string(), diagnostics: z.array(diagnostic) }),
  kap: z.object({ kap }),
  kapWithFiles: z.object({ kap, files: z.array(fileWithContent), version, triggers: z.array(trigger) }),
  kaps: z.object({ kaps: z.array(kap), next_cursor: nextCursor }),
  saved: z.object({ version, diagnostics: z.array(diagnostic) }),
  version: z.object({ version: version.extend({ files: z.array(fileWithContent) }), diagnostics: z.array(diagnostic) }),
  versions: z.object({ versions: z.array(version), next_cursor: nextCursor }),
  diff: z.object({
    from: uuid,
    to: uuid,
    main_file: z.object({ before: z.string(), after: z.string() }),
    files: z.array(z.object({ path: z.string(), kind: z.enum(["added", "removed", "modified"]), before: diffText, after: diffText })),
  }),
  history: z.object({ events: z.array(historyEvent), next_cursor: nextCursor }),
  bypassTokens: z.object({ tokens: z.array(token) }),
  bypassToken: z.object({ bypass_token: token }),
  newBypassToken: z.object({ bypass_token: token.extend({ token: z.string() }) }),
  endpointSecrets: z.object({
    endpoint_secrets: z.array(token),
    address_template: z.string(),
    scheme: z.object({ name: z.string(), header: z.string(), format: z.string(), message: z.string(), max_skew_seconds: z.number().int() }),
  }),
  endpointSecret: z.object({ endpoint_secret: token }),
  newEndpointSecret: z.object({ endpoint_secret: token, shown_once: z.string(), address: z.url() }),
  storeTokens: z.object({ store_tokens: z.array(storeToken) }),
  storeToken: z.object({ store_token: storeToken }),
  newStoreToken: z.object({ store_token: storeToken, token: z.string() }),
  audience: z.object({ policy, events: z.array(historyEvent) }),
  audienceChanged: z.object({ policy, changed: z.boolean() }),
} as const;

/** Paths of kap routes. `kap_id` and `org_id` are an id or a slug. */
export const orgPath = z.object({ org_id: z.string() });
export const kapPath = z.object({ org_id: z.string(), kap_id: z.string() });

const files = z.array(z.strictObject({ path: z.string(), content: z.string() }));

/** Adds a line for everything that is wrong with the file set. */
function checkFiles(input: { main_file?: string | undefined; files: { path: string; content: string }[] }, context: z.RefinementCtx): void {
  for (const { path, message } of fileSetProblems(input.files, input.main_file)) {
    context.addIssue({ code: "custom", path: path.split("."), message });
  }
}

/** What the routes take. */
export const bodies = {
  create: z
    .strictObject({
      name: kapNameText,
      main_file: z.string(),
      files,
      audience: audienceName.default("members"),
      confirm_public: z.boolean().default(false),
    })
    .superRefine(checkFiles),
  save: z.strictObject({ base_version_id: uuid, main_file: z.string().optional(), files }).superRefine(checkFiles),
  restore: z.strictObject({ base_version_id: uuid }),
  rename: z.strictObject({ name: kapNameText }),
  disable: z.strictObject({
    reason: z
      .string()
      .trim()
      .min(1, "must say why")
      .max(1_000, "has at most 1,000 characters")
      .refine((text) => !/[\0\p{Cs}]/u.test(text), "must not hold a NUL character or half of a surrogate pair"),
  }),
  token: z.strictObject({ name: kapNameText }),
  storeToken: z.strictObject({
    name: kapNameText,
    scopes: storeScopes
      .min(1, "must name at least one scope")
      .refine((scopes) => new Set(scopes).size === scopes.length, "must name each scope once"),
    expires_in_hours: z.number().int().min(1).max(720).default(24),
  }),
  audience: z.strictObject({
    audience: audienceName,
    invited: z.array(z.string()).max(1_000, "holds at most 1,000 entries"),
    base_revision: z.number().int(),
    confirm_public: z.boolean().default(false),
  }),
} as const;

const yesOrNo = z.enum(["true", "false", "1", "0"]).transform((value) => value === "true" || value === "1");

/** What the routes read from the query. */
export const queries = {
  save: z.object({ strict: yesOrNo.default(false) }),
  diff: z.object({ from: uuid, to: uuid }),
} as const;
