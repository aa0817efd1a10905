/** A reason not to start that the person at the keyboard can mend: one line that names the cause and the fix. Printed without a stack. */
export class StartRefusal extends Error {
  override name = "StartRefusal";
}
