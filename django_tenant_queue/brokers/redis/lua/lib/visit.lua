-- Visit the lane at the head of a ring: it leaves, is parked, moves on, or gives jobs, as many as its credit and the slots allow.
-- Order of writes: leases first, then the line, the credit, the ring. A job is never nowhere; one that is leased and still in its line
-- (the script died between) is dropped from the line when met.
local BATCH = 500
local claims, taken = {}, 0

-- The next readable job of the line that nobody holds: index, id, task number, cost. Counts what it drops.
local function next_job(entries, index, held)
  local entry = entries[index]
  while entry do
    if #entry == 32 then
      local id, task, cost = struct.unpack('>c16I4I4', entry, 9)
      if cost >= 1 and cost <= 1000000 and not held[id] then return index, id, task, cost end
    end
    drop('line', entry)
    index = index + 1
    entry = entries[index]
  end
  return index
end

-- ids that are leased already
local function held_among(entries)
  local ids, held = {}, {}
  for _, entry in ipairs(entries) do
    if #entry == 32 then ids[#ids + 1] = string.sub(entry, 9, 24) end
  end
  if #ids == 0 then return held end
  for i, where in ipairs(call('HMGET', root .. 'jobs', unpack(ids))) do
    if where and where ~= 'w' then held[ids[i]] = true end
  end
  return held
end

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
  call('HSET', root .. 'lease', unpack(records))
  call('ZADD', root .. 'expiry', unpack(expiries))
  call('ZADD', queue.leases .. lane, unpack(running))
  call('HSET', root .. 'jobs', unpack(places))
  queue.running, queue.waiting, queue.changed = queue.running + #jobs, math.max(0, queue.waiting - #jobs), true
end

local function visit(queue, lane, member, due, slots)
  if due > queue.round then queue.round, queue.changed = due, true end
  local line, asked = queue.line .. lane, math.min(slots, BATCH) + 1
  local entries = call('ZRANGE', line, 0, asked - 1)
  local held = held_among(entries)
  local share, estimate = share_of(lane), by_time and (estimate_of(queue, lane) or first_estimate_us)
  local room, reason = room_of(lane)
  local deficit, last = read_credit(queue, lane)
  local jobs, verdict, lack = {}, nil, nil
  local index, id, task, cost = next_job(entries, 1, held)
  while not verdict do
    local charge = id and (by_time and scaled(estimate, cost) or cost)
    if not id then verdict = #entries < asked and 'leaves' or 'stays' -- entries were dropped: there may be more
    elseif room <= #jobs then verdict = 'parked'
    else
      if last < due then deficit, last = math.min(deficit + (due - last) * share, share + charge), due end
      lack = lack_of(deficit, charge)
      if #jobs == slots then verdict = 'stays'
      elseif lack > 0 then verdict = 'moves'
      else
        deficit = deficit - charge
        held[id] = true
        jobs[#jobs + 1] = {
          id = id, task = task, cost = cost, claimed = now, charged = charge, queue = queue.name, lane = lane,
        }
        index, id, task, cost = next_job(entries, index + 1, held)
      end
    end
  end
  lease_all(queue, lane, jobs)
  if index > 1 then call('ZREMRANGEBYRANK', line, 0, index - 2) end
  write_credit(queue, lane, deficit, last)
  if verdict == 'moves' then
    insert(queue, lane, due + math.max(1, rounds_for(lack, share)), REGULAR)
  elseif verdict == 'leaves' then
    rest_outside(queue, lane)
    take_out(queue, lane, member)
  elseif verdict == 'parked' then
    call('HSET', queue.parked, lane, reason)
    local ends = limits_of(lane).paused_until
    if ends > now then call('ZADD', root .. 'wakeups', ends, lane) end
    take_out(queue, lane, member)
  end
end
