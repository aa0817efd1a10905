/** navigator.userAgent (ECMA-429 §6). */
export class Navigator {
  get userAgent(): string {
    return "Kapstone";
  }
  get [Symbol.toStringTag](): string {
    return "Navigator";
  }
}
export const navigator = new Navigator();
