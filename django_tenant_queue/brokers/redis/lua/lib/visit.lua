-- Visit the lane at the head of a ring: it leaves, is parked, moves on, or gives jobs, as many as its credit and the slots allow.
-- Order of writes: when it expires, the lease, the id, and only then the line, the credit, the ring. A job is never nowhere: one that is
-- leased and still in its line (the script died between) is dropped from the line when met, or the reaper ends a lease nobody knows of.
local MOST_JOBS = 500 -- of one visit: more would not fit one command
local claims, taken = {}, 0

local function lease_all(queue, lane, jobs)
  if #jobs == 0 then return end
  if taken == 0 then remember_request(request, limit) end
  local records, expiries, running, places = {}, {}, {}, {}
  for i, job in ipairs(jobs) do
    local token, record = request .. '.' .. taken, pack_lease(job)
    records[2 * i - 1], records[2 * i] = token, record
    expiries[2 * i - 1], expiries[2 * i] = now + lease_us, token
    running[2 * i - 1], running[2 * i] = now, token
    places[2 * i - 1], places[2 * i] = job.id, token
    claims[2 * taken + 1], claims[2 * taken + 2] = token, record
    taken = taken + 1
  end
  call('ZADD', root .. 'expiry', unpack(expiries))
  call('HSET', root .. 'lease', unpack(records))
  call('ZADD', queue.leases .. lane, unpack(running))
  call('HSET', root .. 'jobs', unpack(places))
  queue.running, queue.waiting, queue.changed = queue.running + #jobs, math.max(0, queue.waiting - #jobs), true
end

local function visit(queue, lane, member, due, slots)
  if due > queue.round then queue.round, queue.changed = due, true end
  local cursor = open_line(queue, lane, slots)
  local share, estimate = share_of(lane), by_time and (estimate_of(queue, lane) or first_estimate_us)
  local room, reason = room_of(lane)
  local deficit, last = read_credit(queue, lane)
  local jobs, verdict, lack = {}, nil, nil
  local id, task, cost = next_job(cursor)
  while not verdict do
    local charge = id and (by_time and scaled(estimate, cost) or cost)
    if not id then verdict = cursor.ended and 'leaves' or 'stays'
    elseif room <= #jobs then verdict = 'parked'
    else
      if last < due then deficit, last = math.min(deficit + (due - last) * share, share + charge), due end
      lack = lack_of(deficit, charge)
      if #jobs == slots or #jobs == MOST_JOBS then verdict = 'stays'
      elseif lack > 0 then verdict = 'moves'
      else
        deficit = deficit - charge
        pass(cursor, id)
        jobs[#jobs + 1] = {
          id = id, task = task, cost = cost, claimed = now, charged = charge, queue = queue.name, lane = lane,
        }
        id, task, cost = next_job(cursor)
      end
    end
  end
  lease_all(queue, lane, jobs)
  if cursor.passed > 0 then call('ZREMRANGEBYRANK', cursor.line, 0, cursor.passed - 1) end
  write_credit(queue, lane, deficit, last)
  if verdict == 'moves' then
    insert(queue, lane, due + math.max(1, rounds_for(lack, share)), REGULAR, member)
  elseif verdict == 'leaves' then
    rest_outside(queue, lane, deficit, last)
    take_out(queue, lane, member)
  elseif verdict == 'parked' then
    call('HSET', queue.parked, lane, reason)
    local ends = limits_of(lane).paused_until
    if ends > now then call('ZADD', root .. 'wakeups', ends, lane) end
    take_out(queue, lane, member)
  end
end
