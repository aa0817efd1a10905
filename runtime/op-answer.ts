/** What a host operation answers: text, bytes, or neither. */
export interface OpAnswer {
  text?: string;
  bytes?: ArrayBuffer;
}
