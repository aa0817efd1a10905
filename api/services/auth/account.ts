import { createHash } from "node:crypto";
import { type Db, isUniqueViolation } from "#platform/postgres.ts";
import { refuse } from "../../http/refusal.ts";
import { policyOf, type SignInPolicy, strictestPolicy } from "./sign-in-policy.ts";

/** One organisation an account is a member of, with its paired test organisation. */
export interface Membership {
  member_id: string;
  role: string;
  org: OrgName;
  test_org: OrgName | null;
  policy: SignInPolicy;
}

export interface OrgName {
  id: string;
  slug: string;
  name: string;
}

/** A person who can sign in, with every organisation they are a member of. */
export interface Account {
  id: string;
  email: string;
  name: string;
  password_hash: string;
  mfa_enrolled: boolean;
  memberships: Membership[];
}

interface AccountRow extends Omit<Account, "memberships"> {
  memberships: (Omit<Membership, "policy"> & { settings: unknown })[] | null;
}

/** Finds an account by email or id. */
export async function findAccount(db: Db, by: { email: string } | { id: string }): Promise<Account | null> {
  const [column, value] = "email" in by ? ["email", by.email] : ["id", by.id];
  const { rows } = await db.raw<{ rows: AccountRow[] }>(
    `select a.id, a.email, a.name, a.password_hash, a.mfa_enrolled,
            (select json_agg(json_build_object('member_id', m.id, 'role', m.role, 'settings', o.settings,
                       'org', json_build_object('id', o.id, 'slug', o.slug, 'name', o.name),
                       'test_org', case when t.id is not null then json_build_object('id', t.id, 'slug', t.slug, 'name', t.name) end) order by m.created_at)
             from members m join orgs o on o.id = m.org_id left join orgs t on t.live_org_id = o.id
             where m.account_id = a.id and m.removed_at is null) as memberships
     from accounts a where a.${column} = ?`,
    [value],
  );
  const row = rows[0];
  if (!row) return null;
  const memberships = (row.memberships ?? []).map(({ settings, ...membership }) => ({ ...membership, policy: policyOf(settings) }));
  return { ...row, memberships };
}

/** The strictest rules of the account's organisations; the defaults for an account, or an email, without any. */
export function accountPolicy(account: Account | null): ReturnType<typeof strictestPolicy> {
  return strictestPolicy(account?.memberships.map(({ policy }) => policy) ?? []);
}

/** The membership under which an account enters the organisation of that slug, live or test. */
export function membershipIn(account: Account, slug: string): { membership: Membership; org: OrgName } | null {
  for (const membership of account.memberships) {
    if (membership.org.slug === slug) return { membership, org: membership.org };
    if (membership.test_org?.slug === slug) return { membership, org: membership.test_org };
  }
  return null;
}

/** What an email is known as where it must be counted but not kept. */
export function emailDigest(email: string): Buffer {
  return createHash("sha256").update(email).digest();
}

/** Writes a new account; 409 when another request has just made one for the same email. */
export async function insertAccount(db: Db, account: { id: string; email: string; name: string; password_hash: string }): Promise<void> {
  try {
    await db("accounts").insert(account);
  } catch (error) {
    if (isUniqueViolation(error)) throw refuse("CONFLICT", "this email has just got an account: try again with that account's password");
    throw error;
  }
}
