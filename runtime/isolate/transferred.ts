import ivm from "isolated-vm";

/** Moves bytes into the isolate without a second copy; the buffer here is empty afterwards. */
export function transferred(bytes: ArrayBuffer): ivm.Copy<ArrayBuffer> {
  return new ivm.ExternalCopy(bytes, { transferOut: true }).copyInto({ release: true, transferIn: true });
}
