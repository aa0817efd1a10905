import type { Knex } from "knex";
import { createKapCatalog } from "./kap-catalog.ts";

/** Kaps: what they are, who may reach them, what they ran, and which runtimes serve them. */
export async function up(db: Knex.Transaction): Promise<void> {
  await db.raw(`
    create table kaps (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      workspace_id uuid references workspaces (id),
      slug text not null unique,
      name text not null,
      audience text not null default 'members' check (audience in ('members', 'invited', 'public')),
      invited text[] not null default '{}',
      audience_revision int not null default 1,
      state text not null default 'active' check (state in ('active', 'disabled', 'deleted')),
      disabled jsonb,                                 -- {by, at, reason}
      current_version_id uuid,
      revision bigint not null default 1,             -- grows with every change a runtime must know: version, triggers, secrets, state
      secrets_pending_revision bigint,                -- set while a runtime has yet to confirm a change of secrets
      schema_name text not null unique,               -- its PostgreSQL schema, login role and object bucket
      role_name text not null unique,
      role_password bytea not null,                   -- sealed, context 'kap-role:<id>'
      bucket text not null unique,
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      updated_at timestamptz not null default now(),
      deleted_at timestamptz,
      recover_until timestamptz,
      purged_at timestamptz
    );
    create index kaps_of_org on kaps (org_id, created_at desc);

    create table kap_versions (
      id uuid primary key,
      kap_id uuid not null references kaps (id),
      sequence int not null,
      main_file text not null,
      files jsonb not null,                           -- [{path, size, sha256}]
      packages jsonb not null default '[]',           -- [{name, version, integrity}] so that a restore or an import builds the same bytes
      diagnostics jsonb not null default '[]',
      bundle_sha256 text not null,
      restored_from uuid references kap_versions (id),
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      client text,
      live_at timestamptz not null default now(),
      unique (kap_id, sequence)
    );
    create table kap_blobs (                          -- file contents, each once per kap
      kap_id uuid not null references kaps (id) on delete cascade,
      sha256 text not null,
      content text not null,
      primary key (kap_id, sha256)
    );
    create table kap_bundles (
      version_id uuid primary key references kap_versions (id) on delete cascade,
      code text not null,
      source_map text,
      code_cache bytea                                -- V8's, compiled from the code at the save; null when there is none
    );

    create table kap_events (                         -- the history of a kap
      id uuid primary key,
      kap_id uuid not null references kaps (id),
      kind text not null,
      at timestamptz not null default now(),
      actor jsonb not null,
      client text,
      detail jsonb not null default '{}'
    );
    create index kap_events_of on kap_events (kap_id, id);

    -- Machine tokens (bypass), endpoint secrets (endpoint) and store capability tokens (store).
    create table kap_tokens (
      id uuid primary key,
      kap_id uuid not null references kaps (id),
      kind text not null check (kind in ('bypass', 'endpoint', 'store')),
      name text not null,
      digest bytea not null unique,
      sealed_value bytea,                             -- of an endpoint secret, which is an HMAC key: context 'endpoint:<id>'
      scopes text[] not null default '{}',
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      expires_at timestamptz,
      revoked_at timestamptz
    );
    create index kap_tokens_of on kap_tokens (kap_id, kind, created_at);

    create unlogged table endpoint_signatures (       -- exact repeats of a signed request within the window are refused
      kap_id uuid not null,
      signature bytea not null,
      expires_at timestamptz not null,
      primary key (kap_id, signature)
    );
    create index endpoint_signatures_age on endpoint_signatures (expires_at);

    create table kap_triggers (
      id uuid primary key,
      kap_id uuid not null references kaps (id),
      kind text not null check (kind in ('request', 'schedule', 'inbox')),
      file_path text not null,
      enabled boolean not null default true,
      cron text,
      interval_seconds int,
      auto_replies boolean not null default false,
      next_run_at timestamptz,
      last_run_at timestamptz,
      last_outcome text,
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      paused_by jsonb,
      paused_at timestamptz,
      deleted_at timestamptz,
      check (kind <> 'schedule' or (cron is null) <> (interval_seconds is null))
    );
    create unique index kap_triggers_one_request on kap_triggers (kap_id) where kind = 'request' and deleted_at is null;
    create unique index kap_triggers_one_inbox on kap_triggers (kap_id) where kind = 'inbox' and deleted_at is null;
    create index kap_triggers_of on kap_triggers (kap_id) where deleted_at is null;
    create index kap_triggers_due on kap_triggers (next_run_at) where kind = 'schedule' and enabled and deleted_at is null;

    create table runs (
      id uuid primary key,
      kap_id uuid not null,
      org_id uuid not null,
      version_id uuid,
      trigger_id uuid,
      trigger_kind text not null,
      status text not null,
      outcome text,
      detail text,
      message text,
      attempts int not null default 1,
      due_at timestamptz,                             -- of a schedule: the time it stands for
      started_at timestamptz not null default now(),
      finished_at timestamptz,
      duration_ms double precision,
      cpu_ms double precision,
      http_status int,
      request_id text,
      caller text,
      method text,
      target text,
      runtime_id uuid,
      phases jsonb,
      usage jsonb,                                    -- {egress_bytes, db_ms}
      measured_at timestamptz,                        -- start of the newest attempt whose measurements are added up here
      acknowledged_by jsonb,
      acknowledged_at timestamptz
    );
    create index runs_of_kap on runs (kap_id, id desc);
    create index runs_failed on runs (kap_id, id desc) where status = 'failed';
    create index runs_of_triggers on runs (kap_id, id desc) where trigger_kind <> 'request';
    create index runs_open on runs (runtime_id) where status in ('queued', 'running');
    create unique index runs_due_once on runs (trigger_id, due_at) where due_at is not null;
    create unique index runs_one_at_a_time on runs (trigger_id) where trigger_kind = 'schedule' and status in ('queued', 'running');

    create table run_payloads (                       -- what a trigger run was given, kept for the retention time
      run_id uuid primary key references runs (id) on delete cascade,
      payload jsonb,
      envelope jsonb,                                 -- of a mail: {from, to, remote_address, helo, received_at, tls}
      object_key text,                                -- of a mail: its raw bytes, in mail_bytes or in the platform's mail bucket
      expires_at timestamptz not null
    );
    create index run_payloads_age on run_payloads (expires_at) where payload is not null or object_key is not null;

    create table kap_log_lines (
      run_id uuid not null,
      n int not null,                                 -- counted from 1 by each attempt of a mail's run, so their times tell attempts apart
      kap_id uuid not null,
      position bigint not null,                       -- in the order in which a kap's lines became visible
      at timestamptz not null,
      level text not null,
      text text not null,
      primary key (run_id, n, at)
    );
    create unique index kap_log_lines_of on kap_log_lines (kap_id, position);
    create table kap_log_heads (                      -- the newest position of each kap's log: its row lock makes positions visible in order
      kap_id uuid primary key,
      last_position bigint not null
    );

    create table mail_messages (                      -- what the ingest said 250 to: each mail once a day, and how many came within the hour
      kap_id uuid not null references kaps (id),
      dedupe_key bytea not null,                      -- digest of Message-ID, envelope sender and body
      received_at timestamptz not null default now(),
      run_id uuid not null,
      object_key text not null,
      size_bytes bigint not null,
      primary key (kap_id, dedupe_key)                -- of two that are the same one wins; past 24 hours the later takes the place of the earlier
    );
    create index mail_messages_objects on mail_messages (object_key);
    create index mail_messages_recent on mail_messages (kap_id, received_at desc);
    create table mail_bytes (                         -- raw mails that are small; larger ones are objects
      object_key text primary key,
      bytes bytea not null
    );
    alter table mail_bytes alter column bytes set storage external; -- mails hardly compress once they are encoded, and trying costs more than writing

    create table secret_groups (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      name text not null,
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      deleted_at timestamptz
    );
    create unique index secret_groups_name on secret_groups (org_id, name) where deleted_at is null;
    create table secret_group_events (
      id uuid primary key,
      group_id uuid not null references secret_groups (id),
      kind text not null,
      at timestamptz not null default now(),
      actor jsonb not null,
      client text,
      detail jsonb not null default '{}'
    );
    create table secrets (                            -- of a kap or of a group
      id uuid primary key,
      kap_id uuid references kaps (id),
      group_id uuid references secret_groups (id),
      name text not null,
      sealed_value bytea not null,                    -- context 'secret:<id>'
      set_at timestamptz not null default now(),
      set_by jsonb not null,
      check ((kap_id is null) <> (group_id is null)),
      unique (kap_id, name),
      unique (group_id, name)
    );
    create table kap_secret_groups (
      kap_id uuid not null references kaps (id),
      group_id uuid not null references secret_groups (id),
      attached_at timestamptz not null default now(),
      primary key (kap_id, group_id)
    );
    -- The names a kap sees, from itself and its groups: the primary key is the conflict rule (409 SECRET_NAME_CONFLICT).
    create table kap_secret_names (
      kap_id uuid not null references kaps (id),
      name text not null,
      secret_id uuid not null references secrets (id) on delete cascade,
      primary key (kap_id, name)
    );
    create index kap_secret_names_of on kap_secret_names (secret_id);

    create table kap_usage (                          -- no foreign key: adding up never waits for a change of the kap
      kap_id uuid not null,
      day date not null,
      runs bigint not null default 0,
      failed_runs bigint not null default 0,
      cpu_ms double precision not null default 0,
      duration_ms double precision not null default 0,
      db_ms double precision not null default 0,
      db_bytes bigint not null default 0,
      store_bytes bigint not null default 0,
      mail_messages bigint not null default 0,
      egress_bytes bigint not null default 0,
      primary key (kap_id, day)
    );

    -- How a browser gets from the organisation's host, where a session is, or from a mailed link, to a kap's own host: a code that is good once.
    create table kap_handovers (
      digest bytea primary key,
      kap_id uuid not null references kaps (id),
      credential_id uuid references credentials (id) on delete cascade,  -- of a member: the session
      browser bytea,                                  -- of a member: digest of the cookie that the browser which set out holds
      email text,                                     -- of a guest: the address the link was mailed to
      expires_at timestamptz not null,
      check ((credential_id is null) <> (email is null) and (credential_id is null) = (browser is null))
    );
    create index kap_handovers_age on kap_handovers (expires_at);
    create table kap_sessions (                       -- cookies of kap hosts: a member's lives as long as the session it came from
      digest bytea primary key,
      kap_id uuid not null references kaps (id),
      credential_id uuid references credentials (id) on delete cascade,
      email text,
      created_at timestamptz not null default now(),
      expires_at timestamptz not null,
      check ((credential_id is null) <> (email is null))
    );
    create index kap_sessions_age on kap_sessions (expires_at);

    -- Which runtime serves which kap: the truth for every replica of the gateway.
    create table runtimes (
      id uuid primary key,
      kap_id uuid not null references kaps (id),
      slot int not null default 0,                    -- several runtimes of one kap have different slots
      state text not null check (state in ('claiming', 'ready', 'draining')),
      data_address text,                              -- unix:/path or tcp:host:port
      control_address text,
      boot_id text,
      token_digest bytea not null,                    -- of the bearer token the runtime calls the api with
      claimed_at timestamptz not null default now(),
      claim_until timestamptz not null,
      last_used_at timestamptz not null default now(),
      last_report_at timestamptz not null default now(),
      unique (kap_id, slot)
    );
    create index runtimes_token on runtimes (token_digest);
  `);
  await createKapCatalog(db);
}
