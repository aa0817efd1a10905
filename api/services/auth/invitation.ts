/** An invitation as PostgreSQL keeps it: the digest of its link, never the link. */
export interface InvitationRow {
  id: string;
  org_id: string;
  email: string;
  role: string;
  created_at: Date;
  created_by: unknown;
  expires_at: Date;
  accepted_at: Date | null;
  revoked_at: Date | null;
}

/** Columns of an invitation that is neither accepted nor revoked. */
export const pending = { accepted_at: null, revoked_at: null };
