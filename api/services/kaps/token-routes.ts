import type { Deps } from "../../deps.ts";
import { signatureSkewSeconds } from "../../gateway/signature.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import { type Route, route } from "../../http/route.ts";
import { type KapRow, lockKap, recordKapChange, refuseDeleted } from "./kap.ts";
import { kapBase, loadKap, readers, writers } from "./kap-access.ts";
import { answers, bodies, kapPath } from "./schema.ts";
import { findToken, mintToken, presentToken, revokeToken, type TokenKind, type TokenRow, tokensOf } from "./token.ts";

const msPerHour = 3_600_000;

/** What each kind is called in the history. */
const eventOf: Record<TokenKind, string> = { bypass: "token", endpoint: "endpoint-secret", store: "store-token" };

async function mint(
  deps: Deps,
  caller: Caller,
  client: string | null,
  kap: KapRow,
  token: { kind: TokenKind; name: string; scopes?: readonly string[]; expiresAt?: Date },
): Promise<{ row: TokenRow; secret: string }> {
  return deps.db.transaction(async (trx) => {
    await lockKap(trx, kap.id);
    const actor = actorOf(caller);
    const minted = await mintToken(trx, deps.keyring, { ...token, kapId: kap.id, actor });
    const detail = { id: minted.row.id, name: token.name, ...(token.scopes ? { scopes: token.scopes, expires_at: token.expiresAt } : {}) };
    await recordKapChange(trx, caller, client, { kap_id: kap.id, kind: `${eventOf[token.kind]}.created`, detail });
    return minted;
  });
}

/** Revokes a token from the next request on: every request reads it anew. Revoking it again changes nothing. */
async function revoke(deps: Deps, caller: Caller, client: string | null, token: TokenRow): Promise<TokenRow> {
  return deps.db.transaction(async (trx) => {
    await lockKap(trx, token.kap_id);
    const { row, revoked } = await revokeToken(trx, token);
    const detail = { id: row.id, name: row.name };
    const kind = `${eventOf[token.kind]}.revoked`;
    if (revoked) await recordKapChange(trx, caller, client, { kap_id: row.kap_id, kind, detail });
    return row;
  });
}

function loadToken(kind: TokenKind) {
  return async (context: Parameters<typeof loadKap>[0] & { params: { token_id: string } }): Promise<TokenRow> => {
    const kap = await loadKap(context);
    return findToken(context.deps.db, kap.id, kind, context.params.token_id);
  };
}

const tokenPath = kapPath.extend({ token_id: kapPath.shape.kap_id });

/** Machine tokens, endpoint secrets and store tokens of a kap. */
export const tokenRoutes: readonly Route[] = [
  route({
    method: "GET",
    path: `${kapBase}/bypass-tokens`,
    summary: "List the machine tokens of a kap, revoked ones too",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The tokens, oldest first", schema: answers.bypassTokens } },
    async handler({ deps, resource: kap }) {
      return { status: 200, body: { tokens: (await tokensOf(deps.db, kap.id, "bypass")).map(presentToken) } };
    },
  }),
  route({
    method: "POST",
    path: `${kapBase}/bypass-tokens`,
    summary: "Mint a machine token; its value is shown once",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.token,
    responses: { 201: { description: "The token with its value", schema: answers.newBypassToken } },
    secretFields: ["bypass_token.token"],
    async handler({ deps, caller, client, resource: kap, body }) {
      const { row, secret } = await mint(deps, caller, client, kap, { kind: "bypass", name: body.name });
      return { status: 201, body: { bypass_token: { ...presentToken(row), token: secret } } };
    },
  }),
  route({
    method: "DELETE",
    path: `${kapBase}/bypass-tokens/{token_id}`,
    summary: "Revoke a machine token for good",
    access: writers,
    params: tokenPath,
    load: loadToken("bypass"),
    responses: { 200: { description: "The token", schema: answers.bypassToken } },
    async handler({ deps, caller, client, resource }) {
      return { status: 200, body: { bypass_token: presentToken(await revoke(deps, caller, client, resource)) } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/endpoint-secrets`,
    summary: "List the endpoint secrets of a kap, live and revoked, and how to use one",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The secrets, the address template and the signature scheme", schema: answers.endpointSecrets } },
    async handler({ deps, resource: kap }) {
      const secrets = await tokensOf(deps.db, kap.id, "endpoint");
      return {
        status: 200,
        body: { endpoint_secrets: secrets.map(presentToken), address_template: addressTemplate(deps, kap), scheme: signatureScheme },
      };
    },
  }),
  route({
    method: "POST",
    path: `${kapBase}/endpoint-secrets`,
    summary: "Mint an endpoint secret; its value is shown once",
    description: "For senders that cannot hold a token: use it in the secret address, or sign requests with it.",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.token,
    responses: { 201: { description: "The secret, its value under shown_once, and its address", schema: answers.newEndpointSecret } },
    secretFields: ["shown_once", "address"],
    async handler({ deps, caller, client, resource: kap, body }) {
      const { row, secret } = await mint(deps, caller, client, kap, { kind: "endpoint", name: body.name });
      const address = addressTemplate(deps, kap).replace("{secret}", secret);
      return { status: 201, body: { endpoint_secret: presentToken(row), shown_once: secret, address } };
    },
  }),
  route({
    method: "DELETE",
    path: `${kapBase}/endpoint-secrets/{token_id}`,
    summary: "Revoke an endpoint secret: both doors refuse it from the next request on",
    access: writers,
    params: tokenPath,
    load: loadToken("endpoint"),
    responses: { 200: { description: "The secret", schema: answers.endpointSecret } },
    async handler({ deps, caller, client, resource }) {
      return { status: 200, body: { endpoint_secret: presentToken(await revoke(deps, caller, client, resource)) } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/store-tokens`,
    summary: "List the store capability tokens of a kap, expired and revoked ones too",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The tokens, oldest first", schema: answers.storeTokens } },
    async handler({ deps, resource: kap }) {
      return { status: 200, body: { store_tokens: (await tokensOf(deps.db, kap.id, "store")).map(presentToken) } };
    },
  }),
  route({
    method: "POST",
    path: `${kapBase}/store-tokens`,
    summary: "Mint a token for the database and file store of one kap; its value is shown once",
    description: "Accepted on /v1/kaps/{kap_id}/db/… and /store/… only. It lives `expires_in_hours` (24 unless told, at most 720).",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.storeToken,
    responses: { 201: { description: "The token with its value", schema: answers.newStoreToken } },
    secretFields: ["token"],
    async handler({ deps, caller, client, resource: kap, body }) {
      refuseDeleted(kap);
      const expiresAt = new Date(Date.now() + body.expires_in_hours * msPerHour);
      const { row, secret } = await mint(deps, caller, client, kap, { kind: "store", name: body.name, scopes: body.scopes, expiresAt });
      return { status: 201, body: { store_token: presentToken(row), token: secret } };
    },
  }),
  route({
    method: "DELETE",
    path: `${kapBase}/store-tokens/{token_id}`,
    summary: "Revoke a store token: dead from the next request on",
    access: writers,
    params: tokenPath,
    load: loadToken("store"),
    responses: { 200: { description: "The token", schema: answers.storeToken } },
    async handler({ deps, caller, client, resource }) {
      return { status: 200, body: { store_token: presentToken(await revoke(deps, caller, client, resource)) } };
    },
  }),
];

function addressTemplate(deps: Deps, kap: KapRow): string {
  return `${deps.addresses.kap(kap.slug)}/__kaps/e/{secret}`;
}

/** How a request is signed with an endpoint secret (spec 3 §5 B rule 5, decided §7.4). */
const signatureScheme = {
  name: "kaps-endpoint-v1",
  header: "X-Kaps-Signature",
  format: "t=<unix seconds>,v1=<lowercase hex HMAC-SHA256>",
  message: "kaps-endpoint-v1\\nMETHOD\\nTARGET\\nt\\nBODY",
  max_skew_seconds: signatureSkewSeconds,
};
