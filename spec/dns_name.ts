const LABEL = /^[a-z0-9_-]{1,63}$/i;
const MAX_NAME_LENGTH = 253;

/** A name without a final dot; hosts' names may have underscores. @see RFC 1035 §2.3.1 */
export function isDnsName(text: string): boolean {
  return text.length <= MAX_NAME_LENGTH && text.split(".").every((label) => LABEL.test(label));
}
