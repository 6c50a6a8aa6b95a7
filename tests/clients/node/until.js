const WAIT_MS = 15000

export async function until(condition, what) {
  const deadline = Date.now() + WAIT_MS
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen within ${WAIT_MS} ms`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}
