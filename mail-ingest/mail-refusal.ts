/** An SMTP reply that refuses: 4xx asks the sender to try again later, 5xx not to. The message is one sentence for the person who reads the bounce. */
export class MailRefusal extends Error {
  override name = "MailRefusal";
  /** The reply's code; `smtp-server` looks for it under this name. */
  readonly responseCode: number;
  constructor(code: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.responseCode = code;
  }
}
