/** What the caller of a call knows of it. */
export interface CallRecord {
  kind: "call";
  key: string;
  startedAt: number;
  endedAt: number;
  /** Null: no answer came at all. */
  status: number | null;
  code: string | null;
  runId: string | null;
  /** The answer began and its connection was cut before its end. */
  isCut: boolean;
  /** The program's whole answer came: the row it stands for was committed. */
  isOk: boolean;
  /** The newest version acknowledged before the call began, and the one that answered. */
  versionBefore: number;
  version: number | null;
  error: string | null;
}

export interface SaveRecord {
  kind: "save";
  startedAt: number;
  endedAt: number;
  status: number | null;
  code: string | null;
  isOk: boolean;
  versionId: string | null;
  sequence: number | null;
  error: string | null;
}

/** One attempt to hand a mail over; a sender tries again until it hears 250. */
export interface MailRecord {
  kind: "mail";
  subject: string;
  startedAt: number;
  endedAt: number;
  status: number | null;
  code: null;
  isOk: boolean;
  error: string | null;
}

export type Entry = CallRecord | SaveRecord | MailRecord;

/** A kill, at the time of this process's clock. */
export interface Kill {
  role: string;
  at: number;
}

/** Everything that was asked of a platform and what it acknowledged, in the order in which it ended. Times are `Date.now()`. */
export class Ledger {
  readonly entries: Entry[] = [];
  readonly kills: Kill[] = [];

  get calls(): CallRecord[] {
    return this.entries.filter((entry) => entry.kind === "call");
  }
  get saves(): SaveRecord[] {
    return this.entries.filter((entry) => entry.kind === "save");
  }
  get mails(): MailRecord[] {
    return this.entries.filter((entry) => entry.kind === "mail");
  }

  acknowledged(kind?: Entry["kind"]): number {
    return this.entries.filter((entry) => entry.isOk && (kind === undefined || entry.kind === kind)).length;
  }

  /** The first success of a kind that was asked for after a moment. */
  firstOkSince(kind: Entry["kind"], at: number): Entry | undefined {
    return this.entries.find((entry) => entry.kind === kind && entry.isOk && entry.startedAt > at);
  }

  /** The newest failures in words, for the message of a failed test. */
  get troubles(): string {
    const failed = this.entries.filter((entry) => !entry.isOk).slice(-6);
    return failed.map((entry) => `${entry.kind} ${entry.status} ${entry.error} (${entry.endedAt - entry.startedAt} ms)`).join("\n");
  }

  /** Whether one of `roles` was killed between the two times. */
  killedBetween(from: number, to: number, roles?: readonly string[]): boolean {
    return this.kills.some(({ role, at }) => at >= from && at <= to && (roles === undefined || roles.includes(role)));
  }
}
