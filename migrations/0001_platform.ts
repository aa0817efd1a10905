import type { Knex } from "knex";

/** Organisations, people, credentials, audit, and the tables of the shared kits (events, idempotency, rate limits). */
export async function up(db: Knex.Transaction): Promise<void> {
  await db.raw(`
    create table orgs (
      id uuid primary key,
      slug text not null unique,
      name text not null,
      mode text not null default 'live' check (mode in ('live', 'test')),
      live_org_id uuid unique references orgs (id),  -- of a test organisation: the one it is paired with
      settings jsonb not null default '{}',
      created_at timestamptz not null default now()
    );

    create table accounts (
      id uuid primary key,
      email text not null unique check (email = lower(email)),
      name text not null,
      password_hash text not null,                    -- argon2id, PHC string format
      email_proved_at timestamptz,                    -- when a link that only the mailbox got was first redeemed
      email_proof_digest bytea,                       -- SHA-256 of the token of the link that would prove it; null when none is out
      mfa_enrolled boolean not null default false,
      mfa_secret bytea,                               -- TOTP secret, sealed, context 'totp:<id>'; pending until mfa_enrolled
      mfa_last_step bigint not null default 0,        -- the time step of the last code used: a code is good once
      created_at timestamptz not null default now(),
      updated_at timestamptz not null default now()
    );
    create table backup_codes (                       -- second factors that are good once each; a used one is gone
      account_id uuid not null references accounts (id),
      digest bytea not null,
      primary key (account_id, digest)
    );
    create table password_resets (
      digest bytea primary key,                       -- SHA-256 of the token in the mailed link
      account_id uuid not null references accounts (id),
      created_at timestamptz not null default now(),
      expires_at timestamptz not null,
      used_at timestamptz
    );
    create index password_resets_of on password_resets (account_id);
    -- Failed sign-ins in a row per account and network address; also of emails without an account, so that both do the same work.
    create table sign_in_failures (
      email_digest bytea not null,
      address text not null,
      failures int not null,
      last_failed_at timestamptz not null default now(),
      locked_until timestamptz,
      primary key (email_digest, address)
    );

    create table signing_keys (                       -- RS256 keys of access tokens
      kid text primary key,
      public_jwk jsonb not null,
      sealed_private_key bytea not null,              -- PKCS#8 PEM, context 'signing-key:<kid>'
      created_at timestamptz not null default now(),
      signs_from timestamptz not null                 -- published in the JWKS before this
    );

    create table org_branding (                       -- apart from orgs.settings, which every request reads a little of
      org_id uuid primary key references orgs (id),
      layout text not null default 'centered',
      mode text not null default 'light',
      logo text,                                      -- data URL
      background_image text
    );

    create table roles (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      name text not null,
      permissions text[] not null,
      created_at timestamptz not null default now(),
      unique (org_id, name)
    );

    create table members (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      account_id uuid not null references accounts (id),
      role text not null,                             -- owner | admin | member | viewer, or the name of a custom role
      created_at timestamptz not null default now(),
      removed_at timestamptz,
      unique (org_id, account_id)
    );
    create index members_account on members (account_id) where removed_at is null;

    create table invitations (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      email text not null check (email = lower(email)),
      role text not null,
      digest bytea not null unique,                   -- SHA-256 of the token in the mailed link
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      expires_at timestamptz not null,
      accepted_at timestamptz,
      revoked_at timestamptz
    );
    create unique index invitations_pending on invitations (org_id, email) where accepted_at is null and revoked_at is null;

    create table workspaces (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      name text not null,
      created_at timestamptz not null default now(),
      unique (org_id, name)
    );

    create table projects (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      name text not null,
      created_at timestamptz not null default now(),
      unique (org_id, name)
    );

    create table agents (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      name text not null,
      created_at timestamptz not null default now(),
      created_by jsonb not null,
      deleted_at timestamptz
    );

    -- One row per credential of any kind; what it may do is here, what proves it is in credential_secrets.
    create table credentials (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      kind text not null check (kind in ('api_key', 'service_token', 'session', 'app_token', 'agent_key')),
      subkind text,                                   -- live | test | org of an API key, the token_type of a service token
      name text not null default '',
      scopes text[] not null default '{}',
      member_id uuid references members (id),         -- the member a session belongs to
      agent_id uuid references agents (id),
      project_id uuid references projects (id),
      workspace_id uuid references workspaces (id),
      key_prefix text not null,
      details jsonb not null default '{}',            -- of a session: device, address
      created_at timestamptz not null default now(),
      created_by jsonb,
      expires_at timestamptz,
      last_used_at timestamptz,
      revoked_at timestamptz
    );
    create index credentials_of_org on credentials (org_id, kind, created_at desc);
    create index credentials_of_member on credentials (member_id) where revoked_at is null;

    -- The SHA-256 digests by which credentials are found. A rotation with overlap leaves the older digest with a live_until.
    create table credential_secrets (
      digest bytea primary key,
      credential_id uuid not null references credentials (id) on delete cascade,
      live_until timestamptz,
      created_at timestamptz not null default now()
    );
    create index credential_secrets_of on credential_secrets (credential_id);
    create unique index credential_secrets_current on credential_secrets (credential_id) where live_until is null;
    create unique index credential_secrets_previous on credential_secrets (credential_id) where live_until is not null;
    create table credential_addresses (               -- where a key has been used from: a new one is told in the anomaly feed
      credential_id uuid not null references credentials (id) on delete cascade,
      address text not null,
      first_used_at timestamptz not null default now(),
      primary key (credential_id, address)
    );

    create table audit_events (
      id uuid primary key,
      org_id uuid not null references orgs (id),
      at timestamptz not null default now(),
      action text not null,
      actor jsonb not null,
      target jsonb not null default '{}',
      address text,
      credential jsonb,
      request_id text,
      detail jsonb not null default '{}'
    );
    create index audit_of_org on audit_events (org_id, id desc);
    create function refuse_change() returns trigger language plpgsql as $$
    begin raise exception 'the audit is append-only'; end $$;
    create trigger audit_append_only before update or delete or truncate on audit_events for each statement execute function refuse_change();

    create table events (
      id uuid primary key,
      position bigint unique,
      org_id uuid not null,
      kind text not null,
      subject text,
      payload jsonb not null,
      created_at timestamptz not null default now()
    );
    create index events_unnumbered on events (id) where position is null;
    create index events_of_org on events (org_id, position);
    create table event_counter (only_row boolean primary key default true check (only_row), last_position bigint not null);
    insert into event_counter (last_position) values (0);
    -- Numbers what has committed since the last call. Each statement of a volatile function takes a new snapshot, so what is numbered after
    -- the lock was granted is everything that had committed by then, and positions become visible in order.
    create function number_events() returns bigint language plpgsql as $$
    declare last bigint; numbered bigint;
    begin
      if not exists (select 1 from kapstone.events where position is null) then
        return (select last_position from kapstone.event_counter);
      end if;
      select last_position into last from kapstone.event_counter for update;
      with pending as (select id, row_number() over (order by id) as n from kapstone.events where position is null),
           done as (update kapstone.events e set position = last + p.n from pending p where p.id = e.id returning 1)
      select count(*) into numbered from done;
      update kapstone.event_counter set last_position = last + numbered;
      return last + numbered;
    end $$;

    create table idempotency_keys (
      credential_id text not null,
      path text not null,
      key text not null,
      body_digest bytea not null,
      status int,
      response jsonb,
      created_at timestamptz not null default now(),
      primary key (credential_id, path, key)
    );
    create index idempotency_keys_age on idempotency_keys (created_at);

    -- Blocks of allowed requests, leased by the replicas: the hot path writes nothing.
    create unlogged table rate_windows (
      bucket text not null,
      window_start timestamptz not null,
      taken int not null,
      primary key (bucket, window_start)
    );

    create table settings (
      key text primary key,
      value jsonb not null
    );
  `);
}
