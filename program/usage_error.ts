export class UsageError extends Error {
  override readonly name = "UsageError";

  /** @param hints what to type instead, a line each */
  constructor(message: string, readonly hints: readonly string[] = []) {
    super(message);
  }
}
