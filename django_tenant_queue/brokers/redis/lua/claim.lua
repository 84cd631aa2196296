-- claim: take jobs under leases, visiting the lanes of the queues in the order given.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- ARGV[8] request id  [9] limit  [10] sleeper, '' for none  [11..] queue, slots, queue, slots, ...
-- Returns 'lost' | 'moved' | 'rebuilding' | {next wake-up us or -1, more 0/1, {samples of dropped entries}, {token, lease, token, lease, ...}}
-- Keeps: a repeated request id takes nothing new; deficit, round, cap and lease change together; at most limit + SPARE_VISITS visits
-- and `limit` wake-ups; who is told "nothing more" sleeps in the same script, so no publish can come in between.
--- include drain
--- include context
if rebuilding then return 'rebuilding' end
local SPARE_VISITS, SPARE_SWEEPS = 64, 16
local request, limit, sleeper = ARGV[8], tonumber(ARGV[9]), ARGV[10]
--- include queue
--- include lane
--- include ring
--- include corrupt
--- include wake
--- include lease
--- include request
--- include line
--- include visit
--- include head
--- include sleep

local function next_wakeup()
  return tonumber(call('ZRANGE', root .. 'wakeups', 0, 0, 'WITHSCORES')[2] or -1)
end

local before = taken_by(request, limit)
if before then return { next_wakeup(), 0, {}, before } end

for _, lane in ipairs(call('ZRANGEBYSCORE', root .. 'wakeups', '-inf', now, 'LIMIT', 0, limit)) do wake(lane) end
local visits, shares = limit + SPARE_VISITS, {}
for i = 11, #ARGV, 2 do
  local queue, share = open_queue(ARGV[i]), tonumber(ARGV[i + 1])
  local full = math.min(taken + share, limit)
  local start = taken
  if full > taken and visits > 0 then
    visits = serve(queue, full, visits)
    sweep(queue, limit + SPARE_SWEEPS)
  end
  shares[#shares + 1] = { queue = queue, slots = share, left = share - (taken - start) }
end
close_queues()
count_dropped()
local wakeup = next_wakeup()
local more = taken < limit and (visits == 0 or (wakeup >= 0 and wakeup <= now))
sleep_or_pass_on(shares, more)
return { wakeup, more and 1 or 0, corrupt, claims }
