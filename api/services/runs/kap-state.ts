import type { KapRow } from "../kaps/kap.ts";

/** What run and log pages say of their kap: its state and a sentence (decided §7.3). */
export function kapState(kap: Pick<KapRow, "slug" | "state" | "disabled" | "deleted_at" | "recover_until">): {
  status: KapRow["state"];
  message: string;
} {
  if (kap.state === "disabled" && kap.disabled) {
    const { by, at, reason } = kap.disabled;
    return {
      status: kap.state,
      message: `${kap.slug} was disabled by ${by.name} at ${at}: ${reason}. Nothing runs until a member enables it again.`,
    };
  }
  if (kap.state === "deleted") {
    return {
      status: kap.state,
      message: `${kap.slug} was deleted at ${kap.deleted_at?.toISOString()}: nothing runs. It can be recovered until ${kap.recover_until?.toISOString()}.`,
    };
  }
  return { status: kap.state, message: `${kap.slug} is active: its triggers that are not paused run.` };
}
