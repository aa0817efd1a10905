import type { CredentialKind } from "./caller.ts";

/** What one read tells of a credential. */
export interface CredentialRow {
  id: string;
  kind: CredentialKind;
  subkind: string | null;
  name: string;
  scopes: string[];
  expires_at: Date | null;
  project_id: string | null;
  workspace_id: string | null;
  kap_id: string | null;
  stale_use: boolean;
  org_id: string;
  org_slug: string;
  org_name: string;
  org_mode: "live" | "test";
  live_org_id: string;
  live_org_slug: string;
  mfa_enforced: boolean;
  member_id: string | null;
  role: string | null;
  role_permissions: string[] | null;
  account_id: string | null;
  email: string | null;
  account_name: string | null;
  mfa_enrolled: boolean | null;
  agent_id: string | null;
  agent_name: string | null;
}

// A test organisation has the members, roles and settings of the live one it is paired with (`l`).
const idleMinutes = `(case when c.kind = 'session' then (l.settings #>> '{session,idle_timeout_minutes}')::int end)`;
const columns = `
  c.id, c.kind, c.subkind, c.name, c.scopes, c.expires_at, c.project_id, c.workspace_id, null::uuid as kap_id,
  (c.last_used_at is null or c.last_used_at < now() - case when ${idleMinutes} is null then interval '1 minute' else interval '5 seconds' end) as stale_use,
  o.id as org_id, o.slug as org_slug, o.name as org_name, o.mode as org_mode, l.id as live_org_id, l.slug as live_org_slug,
  coalesce(l.settings #>> '{mfa,mode}' = 'enforced', false) as mfa_enforced,
  m.id as member_id, m.role, r.permissions as role_permissions, a.id as account_id, a.email, a.name as account_name,
  a.mfa_enrolled, g.id as agent_id, g.name as agent_name`;
const joins = `
  join orgs o on o.id = c.org_id
  join orgs l on l.id = coalesce(o.live_org_id, o.id)
  left join members m on m.id = c.member_id
  left join accounts a on a.id = m.account_id
  left join roles r on r.org_id = m.org_id and r.name = m.role
  left join agents g on g.id = c.agent_id`;
const alive = `
  c.revoked_at is null and (c.expires_at is null or c.expires_at > now())
  and (c.member_id is null or m.removed_at is null) and (c.agent_id is null or g.deleted_at is null)
  and (${idleMinutes} is null or coalesce(c.last_used_at, c.created_at) > now() - make_interval(mins => ${idleMinutes}))`;

/** Keys, tokens and sessions by the digests of their secrets. */
export const bySecrets = {
  name: "credentials-by-secret",
  text: `select s.digest, ${columns} from credential_secrets s join credentials c on c.id = s.credential_id ${joins}
         where s.digest = any($1::bytea[]) and (s.live_until is null or s.live_until > now()) and ${alive}`,
};
/** The session of a JWT by its id. */
export const bySession = {
  name: "credential-by-session",
  text: `select ${columns} from credentials c ${joins} where c.id = $1 and c.kind = 'session' and ${alive}`,
};
/** What a kap's own tokens have in place of the columns above. */
const ofKap = `
  null as project_id, k.workspace_id, k.id as kap_id, false as stale_use, o.id as org_id, o.slug as org_slug, o.name as org_name, o.mode as org_mode,
  coalesce(l.id, o.id) as live_org_id, coalesce(l.slug, o.slug) as live_org_slug, false as mfa_enforced,
  null as member_id, null as role, null as role_permissions, null as account_id, null as email, null as account_name, null as mfa_enrolled,
  null as agent_id, null as agent_name
  from kaps k join orgs o on o.id = k.org_id left join orgs l on l.id = o.live_org_id`;
/** A kap's store token by its digest. */
export const byStoreToken = {
  name: "credential-by-store-token",
  text: `select t.id, 'store_token' as kind, null as subkind, t.name, t.scopes, t.expires_at, ${ofKap} join kap_tokens t on t.kap_id = k.id
         where t.digest = $1 and t.kind = 'store' and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())`,
};
/** A runtime by its token's digest. */
export const byRuntimeToken = {
  name: "credential-by-runtime-token",
  text: `select t.id, 'runtime' as kind, null as subkind, 'runtime of ' || k.slug as name, '{}'::text[] as scopes, null::timestamptz as expires_at, ${ofKap}
         join runtimes t on t.kap_id = k.id where t.token_digest = $1`,
};
/** Writes a use and its address. Answers the credential when this address is new to it, and not its first. */
export const touch = {
  name: "credential-touch",
  text: `with touched as (
           update credentials set last_used_at = now() where id = $1 and (last_used_at is null or last_used_at < now() - interval '5 seconds')
           returning id, org_id, kind, name, created_at
         ), place as (
           insert into credential_addresses (credential_id, address) select id, $2 from touched where kind <> 'session' on conflict do nothing returning credential_id
         )
         select t.id, t.org_id, t.kind, t.name from touched t join place p on p.credential_id = t.id
         where exists (select 1 from credential_addresses a where a.credential_id = t.id and a.address <> $2)`,
};
