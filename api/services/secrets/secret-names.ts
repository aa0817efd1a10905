import type { Db } from "#platform/postgres.ts";
import { Refusal } from "../../http/refusal.ts";

/** A name that a kap would see twice. */
interface Conflict {
  kap_id: string;
  kap_slug: string;
  name: string;
  held_by: string;
}

/**
 * Makes names visible to kaps: each pair is (kap, secret). The primary key (kap, name) is the rule that effective names are unique: when any
 * name is taken, also by a change that commits at this moment, the whole change is refused with 409 `SECRET_NAME_CONFLICT`. Pairs are taken in
 * the order of the kaps, so that two changes over the same kaps cannot wait for each other.
 */
export async function claimNames(trx: Db, pairs: readonly { kap_id: string; secret_id: string; name: string }[]): Promise<void> {
  if (pairs.length === 0) return;
  const columns = [pairs.map((pair) => pair.kap_id), pairs.map((pair) => pair.name), pairs.map((pair) => pair.secret_id)];
  const { rows: taken } = await trx.raw<{ rows: { kap_id: string; name: string }[] }>(
    `insert into kap_secret_names (kap_id, name, secret_id)
     select * from unnest(?::uuid[], ?::text[], ?::uuid[]) as t (kap_id, name, secret_id) order by kap_id, name
     on conflict (kap_id, name) do nothing returning kap_id, name`,
    columns as unknown as string[],
  );
  if (taken.length === pairs.length) return;
  const got = new Set(taken.map((row) => `${row.kap_id} ${row.name}`));
  throw await conflictOf(
    trx,
    pairs.filter((pair) => !got.has(`${pair.kap_id} ${pair.name}`)),
  );
}

async function conflictOf(trx: Db, lost: readonly { kap_id: string; name: string }[]): Promise<Refusal> {
  const { rows } = await trx.raw<{ rows: Conflict[] }>(
    `select n.kap_id, k.slug as kap_slug, n.name, coalesce('the group ' || g.name, 'the kap itself') as held_by
     from unnest(?::uuid[], ?::text[]) as t (kap_id, name)
     join kap_secret_names n on n.kap_id = t.kap_id and n.name = t.name
     join kaps k on k.id = n.kap_id join secrets s on s.id = n.secret_id left join secret_groups g on g.id = s.group_id
     order by n.kap_id, n.name`,
    [lost.map((pair) => pair.kap_id), lost.map((pair) => pair.name)] as unknown as string[],
  );
  const [first] = rows;
  const message = first
    ? `the kap ${first.kap_slug} already has a secret ${first.name}, from ${first.held_by}: remove one of the two, or choose another name. Nothing was changed`
    : "a name was taken at this moment by another change: look at the secrets again. Nothing was changed";
  return new Refusal(409, "SECRET_NAME_CONFLICT", message, {
    details: rows.map(({ kap_id, name, held_by }) => ({ kap_id, name, held_by })),
  });
}
