/** Only relative paths need it, so its removal is no error. */
export function findWorkingDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}
